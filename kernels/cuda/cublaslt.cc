#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <map>
#include <utility>

#include "kernels/cuda/cublaslt_api.h"

namespace troupe::kernels {

namespace {

using namespace cublaslt_api;

constexpr std::uint32_t kMostAlignment = 256;

// The name of the first function that the library does not have; null: it has all.
const char* resolve(void* library, Functions& f) {
  const char* missing = nullptr;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  get(f.create, "cublasLtCreate");
  get(f.destroy, "cublasLtDestroy");
  get(f.desc_create, "cublasLtMatmulDescCreate");
  get(f.desc_destroy, "cublasLtMatmulDescDestroy");
  get(f.desc_set, "cublasLtMatmulDescSetAttribute");
  get(f.layout_create, "cublasLtMatrixLayoutCreate");
  get(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  get(f.preference_create, "cublasLtMatmulPreferenceCreate");
  get(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  get(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  get(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  get(f.matmul, "cublasLtMatmul");
  return missing;
}

std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return std::min(kMostAlignment, address == 0 ? kMostAlignment : std::uint32_t{1} << std::min(std::countr_zero(address), 8));
}

class Library final : public CublasLt {
 public:
  Library(void* library, const Functions& functions, Handle handle) : library_(library), f_(functions), handle_(handle) {}
  ~Library() override {
    forget_plans();
    (void)f_.destroy(handle_);
    ::dlclose(library_);
  }

  void use_workspace(void* workspace) override { workspace_ = workspace; }
  void multiply(const CublasLtProduct& p, CudaStream stream) override;
  std::string take_failure() override { return std::exchange(failure_, {}); }

 private:
  struct Shape {
    std::uint32_t rows, cols, n;
    std::size_t stride;
    std::array<std::uint32_t, 3> alignments;  // of w, x, y
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan {
    Desc desc = nullptr;
    Layout w = nullptr, x = nullptr, y = nullptr;
    Algorithm algorithm{};
  };

  // Row-major matrices are column-major ones transposed: w is cols x rows, x is cols x n and y is rows x n, so y = w^T x.
  bool make(const Shape& s, Plan& plan);
  void forget(Plan& plan);
  void forget_plans() {
    for (auto& [shape, plan] : plans_) forget(plan);
    plans_.clear();
  }
  bool ok(Status status, const char* call) {
    if (status != 0 && failure_.empty()) failure_ = std::string(call) + " of cuBLASLt answered status " + std::to_string(status);
    return status == 0;
  }

  void* const library_;
  const Functions f_;
  const Handle handle_;
  void* workspace_ = nullptr;
  std::map<Shape, Plan> plans_;
  std::string failure_;
};

bool Library::make(const Shape& s, Plan& plan) {
  if (!ok(f_.desc_create(&plan.desc, kCompute32F, kR32F), "cublasLtMatmulDescCreate") ||
      !ok(f_.desc_set(plan.desc, kDescTransA, &kTransposed, sizeof kTransposed), "cublasLtMatmulDescSetAttribute") ||
      !ok(f_.layout_create(&plan.w, kR16BF, s.cols, s.rows, s.cols), "cublasLtMatrixLayoutCreate") ||
      !ok(f_.layout_create(&plan.x, kR16BF, s.cols, s.n, s.cols), "cublasLtMatrixLayoutCreate") ||
      !ok(f_.layout_create(&plan.y, kR32F, s.rows, s.n, static_cast<std::int64_t>(s.stride)), "cublasLtMatrixLayoutCreate"))
    return false;
  Preference preference = nullptr;
  if (!ok(f_.preference_create(&preference), "cublasLtMatmulPreferenceCreate")) return false;
  const std::uint64_t workspace = workspace_ == nullptr ? 0 : kCublasLtWorkspace;
  bool made =
      ok(f_.preference_set(preference, kPreferWorkspaceBytes, &workspace, sizeof workspace), "cublasLtMatmulPreferenceSetAttribute");
  for (int i = 0; made && i < 4; ++i) {
    const std::uint32_t& alignment = s.alignments[static_cast<std::size_t>(std::min(i, 2))];  // y is C and D
    made = ok(f_.preference_set(preference, kPreferAlignmentOfA + i, &alignment, sizeof alignment), "cublasLtMatmulPreferenceSetAttribute");
  }
  Heuristic found{};
  int n = 0;
  made = made &&
         ok(f_.heuristic(handle_, plan.desc, plan.w, plan.x, plan.y, plan.y, preference, 1, &found, &n), "cublasLtMatmulAlgoGetHeuristic");
  (void)f_.preference_destroy(preference);
  if (made && n < 1 && failure_.empty()) failure_ = "cuBLASLt has no algorithm for a product that is asked of it";
  if (!made || n < 1 || !ok(found.state, "cublasLtMatmulAlgoGetHeuristic")) return false;
  plan.algorithm = found.algorithm;
  return true;
}

void Library::forget(Plan& plan) {
  for (Layout layout : {plan.w, plan.x, plan.y})
    if (layout != nullptr) (void)f_.layout_destroy(layout);
  if (plan.desc != nullptr) (void)f_.desc_destroy(plan.desc);
}

void Library::multiply(const CublasLtProduct& p, CudaStream stream) {
  if (p.n == 0 || p.rows == 0) return;
  const Shape shape{p.rows, p.cols, p.n, p.stride, {alignment_of(p.w), alignment_of(p.x), alignment_of(p.y)}};
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    if (plans_.size() >= kMostPlans) forget_plans();
    Plan plan;
    if (!make(shape, plan)) return forget(plan);
    found = plans_.emplace(shape, plan).first;
  }
  const Plan& plan = found->second;
  const float one = 1.0f, beta = p.add ? 1.0f : 0.0f;
  (void)ok(f_.matmul(handle_, plan.desc, &one, p.w, plan.w, p.x, plan.x, &beta, p.y, plan.y, p.y, plan.y, &plan.algorithm, workspace_,
                     workspace_ == nullptr ? 0 : kCublasLtWorkspace, stream),
           "cublasLtMatmul");
}

}  // namespace

OpenedCublasLt open_cublaslt(const std::string& path) {
  static constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                           "/usr/local/cuda/lib64/libcublasLt.so"};
  void* library = nullptr;
  std::string name = path;
  if (!path.empty()) {
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  } else {
    for (const char* const candidate : kNames) {
      name = candidate;
      library = ::dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
  }
  if (library == nullptr) {
    if (path.empty()) return {nullptr, "libcublasLt is not on this machine"};
    const char* const why = ::dlerror();
    return {nullptr, why != nullptr ? why : path + " cannot be opened"};
  }
  Functions functions;
  if (const char* const missing = resolve(library, functions)) {
    ::dlclose(library);
    return {nullptr, name + " has no " + missing};
  }
  Handle handle = nullptr;
  if (const Status status = functions.create(&handle); status != 0) {
    ::dlclose(library);
    return {nullptr, "cublasLtCreate of " + name + " answered status " + std::to_string(status)};
  }
  return {std::make_unique<Library>(library, functions, handle), {}};
}

}  // namespace troupe::kernels
