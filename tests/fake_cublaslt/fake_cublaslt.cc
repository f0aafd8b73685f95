#include "tests/fake_cublaslt/fake_cublaslt.h"

#include <cstddef>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace {

constexpr int kInvalidValue = 7;  // cublasStatus_t
constexpr std::size_t kNeededWorkspace = 4096;

struct Desc {
  int compute = -1, scale = -1;
  std::int32_t transposed[2] = {0, 0};  // A, B
};
struct Layout {
  int type = -1;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // A, B, C, D
};
struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

struct Library {
  std::mutex mutex;
  std::set<const void*> alive;
  std::string report;
  bool reported = false;
  FakeCublasLtEnqueue enqueue = nullptr;
  std::uint64_t products = 0, fail_in = 0;
  int fail_status = 0;

  int wrong(std::string what) {
    if (!reported) report = std::move(what);
    reported = true;
    return kInvalidValue;
  }
};
Library& library() {
  static Library l;
  return l;
}

template <class T>
int make(void** out, T value) {
  const std::lock_guard lock(library().mutex);
  *out = new T(value);
  library().alive.insert(*out);
  return 0;
}
template <class T>
int destroy(void* object) {
  const std::lock_guard lock(library().mutex);
  if (library().alive.erase(object) == 0) return library().wrong("an object is destroyed that is not alive");
  delete static_cast<T*>(object);
  return 0;
}

// What an algorithm is good for: it is its data.
Algorithm algorithm_of(const Desc& d, const Layout& a, const Layout& b, const Layout& out, const std::uint32_t (&alignment)[4]) {
  return {{a.rows << 32 | a.cols, b.rows << 32 | b.cols, out.rows << 32 | out.cols, static_cast<std::uint64_t>(out.ld),
           static_cast<std::uint64_t>(d.transposed[0]) << 1 | static_cast<std::uint64_t>(d.transposed[1]),
           std::uint64_t{alignment[0]} << 32 | alignment[1], std::uint64_t{alignment[2]} << 32 | alignment[3], 0x600D}};
}

float bf16(const void* p, std::uint64_t at) {
  std::uint16_t half;
  std::memcpy(&half, static_cast<const std::uint16_t*>(p) + at, sizeof half);
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

struct Product {
  Desc desc;
  Layout a, b, c, d;
  const void *pa, *pb;
  const float* pc;
  float* pd;
  float alpha, beta;
};

void run(void* context) {
  const auto* p = static_cast<const Product*>(context);
  const std::uint64_t k = p->desc.transposed[0] != 0 ? p->a.rows : p->a.cols;
  const auto at = [](const Layout& l, bool transposed, std::uint64_t row, std::uint64_t col) {
    return transposed ? row * static_cast<std::uint64_t>(l.ld) + col : col * static_cast<std::uint64_t>(l.ld) + row;
  };
  for (std::uint64_t col = 0; col < p->d.cols; ++col) {
    for (std::uint64_t row = 0; row < p->d.rows; ++row) {
      float sum = 0.0f;
      for (std::uint64_t i = k; i-- > 0;)
        sum += bf16(p->pa, at(p->a, p->desc.transposed[0] != 0, row, i)) * bf16(p->pb, at(p->b, p->desc.transposed[1] != 0, i, col));
      const float before = p->beta == 0.0f ? 0.0f : p->beta * p->pc[at(p->c, false, row, col)];
      p->pd[at(p->d, false, row, col)] = p->alpha * sum + before;
    }
  }
}
void release(void* context) { delete static_cast<Product*>(context); }

bool aligned(const void* p, std::uint64_t to) { return to != 0 && reinterpret_cast<std::uintptr_t>(p) % to == 0; }

}  // namespace

extern "C" {

void fake_cublaslt_use(FakeCublasLtEnqueue enqueue) { library().enqueue = enqueue; }
void fake_cublaslt_fail(std::uint64_t nth, int status) {
  const std::lock_guard lock(library().mutex);
  library().fail_in = nth;
  library().fail_status = status;
}
const char* fake_cublaslt_report() {
  const std::lock_guard lock(library().mutex);
  if (!library().reported) return nullptr;
  library().reported = false;
  return library().report.c_str();
}
std::uint64_t fake_cublaslt_alive() {
  const std::lock_guard lock(library().mutex);
  return library().alive.size();
}
std::uint64_t fake_cublaslt_products() {
  const std::lock_guard lock(library().mutex);
  return library().products;
}

int cublasLtCreate(void** handle) { return make(handle, int{0}); }
int cublasLtDestroy(void* handle) { return destroy<int>(handle); }

int cublasLtMatmulDescCreate(void** desc, int compute, int scale) { return make(desc, Desc{compute, scale, {0, 0}}); }
int cublasLtMatmulDescDestroy(void* desc) { return destroy<Desc>(desc); }
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, std::size_t bytes) {
  const std::lock_guard lock(library().mutex);
  if (library().alive.count(desc) == 0 || (attribute != 3 && attribute != 4) || bytes != sizeof(std::int32_t))
    return library().wrong("cublasLtMatmulDescSetAttribute: attribute " + std::to_string(attribute) + " of " + std::to_string(bytes) +
                           " bytes");
  std::memcpy(&static_cast<Desc*>(desc)->transposed[attribute - 3], value, bytes);
  return 0;
}

int cublasLtMatrixLayoutCreate(void** layout, int type, std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  if (ld < static_cast<std::int64_t>(rows)) {
    const std::lock_guard lock(library().mutex);
    return library().wrong("cublasLtMatrixLayoutCreate: columns overlap");
  }
  return make(layout, Layout{type, rows, cols, ld});
}
int cublasLtMatrixLayoutDestroy(void* layout) { return destroy<Layout>(layout); }

int cublasLtMatmulPreferenceCreate(void** preference) { return make(preference, Preference{}); }
int cublasLtMatmulPreferenceDestroy(void* preference) { return destroy<Preference>(preference); }
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, std::size_t bytes) {
  const std::lock_guard lock(library().mutex);
  if (library().alive.count(preference) == 0) return library().wrong("a preference that is not alive");
  auto& p = *static_cast<Preference*>(preference);
  if (attribute == 1 && bytes == sizeof p.workspace) return std::memcpy(&p.workspace, value, bytes), 0;
  if (attribute >= 5 && attribute <= 8 && bytes == sizeof p.alignment[0]) return std::memcpy(&p.alignment[attribute - 5], value, bytes), 0;
  return library().wrong("cublasLtMatmulPreferenceSetAttribute: attribute " + std::to_string(attribute) + " of " + std::to_string(bytes) +
                         " bytes");
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
                                   Heuristic* found, int* n) {
  const std::lock_guard lock(library().mutex);
  for (const void* object : {handle, desc, a, b, c, d, preference})
    if (library().alive.count(object) == 0) return library().wrong("cublasLtMatmulAlgoGetHeuristic: an object that is not alive");
  const auto& p = *static_cast<Preference*>(preference);
  *n = 0;
  if (wanted < 1 || p.workspace < kNeededWorkspace) return 0;
  found[0] = {
      algorithm_of(*static_cast<Desc*>(desc), *static_cast<Layout*>(a), *static_cast<Layout*>(b), *static_cast<Layout*>(d), p.alignment),
      kNeededWorkspace,
      0,
      1.0f,
      {}};
  *n = 1;
  return 0;
}

int cublasLtMatmul(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                   const void* beta, const void* c, void* c_layout, void* d, void* d_layout, const Algorithm* algorithm, void* workspace,
                   std::size_t workspace_bytes, void* stream) {
  Library& l = library();
  std::unique_lock lock(l.mutex);
  for (const void* object : {handle, desc, a_layout, b_layout, c_layout, d_layout})
    if (l.alive.count(object) == 0) return l.wrong("cublasLtMatmul: an object that is not alive");
  if (l.fail_in != 0 && --l.fail_in == 0) return l.fail_status;
  auto* product = new Product{*static_cast<Desc*>(desc),
                              *static_cast<Layout*>(a_layout),
                              *static_cast<Layout*>(b_layout),
                              *static_cast<Layout*>(c_layout),
                              *static_cast<Layout*>(d_layout),
                              a,
                              b,
                              static_cast<const float*>(c),
                              static_cast<float*>(d),
                              *static_cast<const float*>(alpha),
                              *static_cast<const float*>(beta)};
  const Product& p = *product;
  const auto refuse = [&](const char* what) {
    delete product;
    return l.wrong(std::string("cublasLtMatmul: ") + what);
  };
  const bool ta = p.desc.transposed[0] != 0, tb = p.desc.transposed[1] != 0;
  if (p.desc.compute != 68 || p.desc.scale != 0 || p.a.type != 14 || p.b.type != 14 || p.c.type != 0 || p.d.type != 0)
    return refuse("BF16 in, and 32 bits for sums, scales and the answer, are expected");
  if ((ta ? p.a.cols : p.a.rows) != p.d.rows || (tb ? p.b.rows : p.b.cols) != p.d.cols ||
      (ta ? p.a.rows : p.a.cols) != (tb ? p.b.cols : p.b.rows))
    return refuse("the shapes do not fit together");
  if (algorithm == nullptr) return refuse("no algorithm");
  std::uint32_t said[4] = {static_cast<std::uint32_t>(algorithm->data[5] >> 32), static_cast<std::uint32_t>(algorithm->data[5]),
                           static_cast<std::uint32_t>(algorithm->data[6] >> 32), static_cast<std::uint32_t>(algorithm->data[6])};
  const Algorithm right = algorithm_of(p.desc, p.a, p.b, p.d, said);
  if (std::memcmp(&right, algorithm, sizeof right) != 0) return refuse("the algorithm is another product's");
  if (!aligned(a, said[0]) || !aligned(b, said[1]) || !aligned(c, said[2]) || !aligned(d, said[3]))
    return refuse("a pointer is less aligned than was said");
  if (!aligned(workspace, 256) || workspace == nullptr || workspace_bytes < kNeededWorkspace)
    return refuse("the workspace is too small, or not aligned");
  ++l.products;
  lock.unlock();
  if (l.enqueue != nullptr)
    l.enqueue(stream, &run, &release, product);
  else
    run(product), release(product);
  return 0;
}
}
