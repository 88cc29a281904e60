// The functions that are forwarded whatever their parameters: each jumps to the function of the same name of the NCCL
// below, with all registers and the stack as they are. The address is found at the first call, because a preloaded
// library is also in processes that never call NCCL.
#include <atomic>
#include <string_view>

#include "gc3/nccl/real.h"

namespace {

// Where a function jumps to, at first to code that finds it. Changed once; see gc3_nccl_find.
struct Forward {
  const void* target;
  const char* name;
};

int lacks() { return gc3::nccl::kInvalidUsage; }
int without_nccl() { return gc3::nccl::kSystemError; }
const char* text_without_nccl() { return gc3::nccl::Real::get().problem().c_str(); }

template <class Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

}  // namespace

// The jumps are assembler code, because C++ cannot pass on parameters that it does not know. `gc3_nccl_resolve` saves
// the registers that parameters are passed in, calls gc3_nccl_find, and jumps to what that returns.
#if defined(__x86_64__)
#define GC3_JUMP(name)                                                                                              \
  asm(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n.p2align 4\n" #name                        \
      ":\n  endbr64\n  jmp *gc3_forward_" #name "(%rip)\ngc3_find_" #name ":\n  endbr64\n  leaq gc3_forward_" #name \
      "(%rip), %r11\n  jmp gc3_nccl_resolve\n.size " #name ", . - " #name "\n.popsection\n");
asm(R"(
.pushsection .text
.hidden gc3_nccl_find
gc3_nccl_resolve:
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  pushq %rax
  pushq %r11
  subq $136, %rsp
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movq %r11, %rdi
  call gc3_nccl_find
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $136, %rsp
  popq %r11
  movq %rax, %r11
  popq %rax
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  jmp *%r11
.popsection
)");
#elif defined(__aarch64__)
#define GC3_JUMP(name)                                                                                   \
  asm(".pushsection .text\n.globl " #name "\n.type " #name ", %function\n.p2align 4\n" #name             \
      ":\n  bti c\n  adrp x17, gc3_forward_" #name "\n  add x17, x17, :lo12:gc3_forward_" #name          \
      "\n  ldr x16, [x17]\n  br x16\ngc3_find_" #name ":\n  bti j\n  adrp x17, gc3_forward_" #name       \
      "\n  add x17, x17, :lo12:gc3_forward_" #name "\n  b gc3_nccl_resolve\n.size " #name ", . - " #name \
      "\n.popsection\n");
asm(R"(
.pushsection .text
.hidden gc3_nccl_find
gc3_nccl_resolve:
  stp x29, x30, [sp, #-224]!
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x17
  bl gc3_nccl_find
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  br x16
.popsection
)");
#else
#error "the overlay of NCCL's API is for x86-64 and aarch64"
#endif

#define GC3_HIDDEN __attribute__((visibility("hidden"), used))
#define GC3_FORWARD(symbol)                                                    \
  extern "C" {                                                                 \
  extern __attribute__((visibility("hidden"))) const char gc3_find_##symbol[]; \
  GC3_HIDDEN Forward gc3_forward_##symbol = {gc3_find_##symbol, #symbol};      \
  }                                                                            \
  GC3_JUMP(symbol)

#define GC3_NCCL_FORWARDED(symbol) GC3_FORWARD(symbol) GC3_FORWARD(p##symbol)
#define GC3_NCCL_TAKEN(symbol) GC3_FORWARD(p##symbol)
#include "gc3/nccl/nccl_api.def"
#undef GC3_NCCL_FORWARDED
#undef GC3_NCCL_TAKEN

extern "C" GC3_HIDDEN const void* gc3_nccl_find(Forward* of) {
  const gc3::nccl::Real& real = gc3::nccl::Real::get();
  if (const void* const found = real.find(of->name); found != nullptr) {
    // Relaxed: what the address leads to was complete before this thread got it, and every thread that reads the old
    // target comes here. The jump reads it with one instruction.
    std::atomic_ref(of->target).store(found, std::memory_order_relaxed);
    return found;
  }
  const std::string_view name = of->name;
  if (name.ends_with("GetErrorString") || name.ends_with("GetLastError")) return address(text_without_nccl);
  gc3::nccl::missing(of->name);
  return real.problem().empty() ? address(lacks) : address(without_nccl);
}
