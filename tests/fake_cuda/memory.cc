// Memory and copies of the fake runtime, and its graphs.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "tests/fake_cuda/machine.h"

using fake_cuda::Call;
using fake_cuda::Entry;
using fake_cuda::Pinned;
using fake_cuda::Work;

extern "C" {

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
  Entry e(Call::cudaMemcpyAsync, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (kind == cudaMemcpyHostToHost) return Entry::done(cudaErrorNotSupported);
  if (count == 0) return cudaSuccess;
  Work work;
  work.kind = Work::Kind::copy;
  work.dst = dst;
  work.src = src;
  work.bytes = count;
  work.direction = kind;
  const bool pageable = kind != cudaMemcpyDeviceToDevice && e.m.pinned.find(kind == cudaMemcpyHostToDevice ? src : dst, count) == nullptr;
  const cudaError_t error = e.m.enqueue(*stream, std::move(work), e.name());
  if (error == cudaSuccess && pageable) {  // staged by the driver: back when it is done
    const std::uint64_t until = stream->enqueued;
    const cudaError_t& loss = e.m.lost[static_cast<std::size_t>(stream->device)];
    e.m.changed.wait(e.lock, [&] { return stream->done >= until || loss != cudaSuccess; });
  }
  return Entry::done(error);
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  Entry e(Call::cudaMemsetAsync, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  Work work;
  work.kind = Work::Kind::set;
  work.dst = devPtr;
  work.bytes = count;
  work.value = value;
  return Entry::done(e.m.enqueue(*stream, std::move(work), e.name()));
}

cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
  Entry e(Call::cudaMallocAsync, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(hStream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (!e.m.options.memory_pools) return Entry::done(cudaErrorNotSupported);
  constexpr std::size_t kAlign = 256;
  std::size_t& used = e.m.used[static_cast<std::size_t>(hStream->device)];
  if (size > e.m.options.device_bytes - used) return Entry::done(cudaErrorMemoryAllocation);
  const std::size_t rounded = (size + kAlign - 1) / kAlign * kAlign;
  void* ptr = size == 0 ? nullptr : std::aligned_alloc(kAlign, rounded);
  if (ptr == nullptr) return Entry::done(size == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
  std::memset(ptr, 0xCD, rounded);
  used += size;
  e.m.memory[reinterpret_cast<std::uintptr_t>(ptr)] = {size, hStream->device};
  *devPtr = ptr;
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  Entry e(Call::cudaFreeAsync, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(hStream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (e.m.memory.count(reinterpret_cast<std::uintptr_t>(devPtr)) == 0) {
    e.m.report("cudaFreeAsync: no such device memory, or freed before");
    return Entry::done(cudaErrorInvalidValue);
  }
  Work work;
  work.kind = Work::Kind::free;
  work.dst = devPtr;
  return Entry::done(e.m.enqueue(*hStream, std::move(work), e.name()));
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int) {
  Entry e(Call::cudaHostAlloc, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (e.breaks_capture()) return Entry::done(cudaErrorStreamCaptureUnsupported);
  void* ptr = size == 0 ? nullptr : e.m.pinned.alloc(size);
  if (ptr == nullptr) return Entry::done(size == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
  *pHost = ptr;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* ptr) {
  Entry e(Call::cudaFreeHost, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (e.breaks_capture()) return Entry::done(cudaErrorStreamCaptureUnsupported);
  Pinned::Area* area = e.m.pinned.find(ptr, 0);
  if (area == nullptr || Pinned::freed(*area) || !Pinned::starts_at(*area, ptr)) {
    e.m.report("cudaFreeHost: no such page-locked memory, or freed before");
    return Entry::done(cudaErrorInvalidValue);
  }
  if (Pinned::in_flight(*area)) e.m.report("cudaFreeHost: a copy that uses the memory is in flight, or nobody has seen its end");
  e.m.pinned.free(*area);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  Entry e(Call::cudaStreamBeginCapture, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (stream->capturing) return Entry::done(cudaErrorStreamCaptureUnsupported);
  stream->capturing = true;
  stream->capture_broken = false;
  stream->mode = mode;
  stream->capturer = std::this_thread::get_id();
  stream->graph = std::make_unique<CUgraph_st>();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  Entry e(Call::cudaStreamEndCapture, Entry::Needs::device);
  *pGraph = nullptr;
  if (e.refused()) {
    if (e.m.streams.count(stream) != 0) stream->capturing = false;
    return Entry::done(e.error());
  }
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (!stream->capturing) return Entry::done(cudaErrorStreamCaptureUnmatched);
  if (stream->mode != cudaStreamCaptureModeRelaxed && stream->capturer != std::this_thread::get_id()) {
    return Entry::done(cudaErrorStreamCaptureWrongThread);
  }
  stream->capturing = false;
  if (stream->capture_broken) return Entry::done(cudaErrorStreamCaptureInvalidated);
  *pGraph = *e.m.graphs.insert(stream->graph.release()).first;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long) {
  Entry e(Call::cudaGraphInstantiate, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (e.m.graphs.count(graph) == 0) return Entry::done(cudaErrorInvalidValue);
  auto exec = std::make_unique<CUgraphExec_st>();
  exec->nodes = graph->nodes;
  *pGraphExec = *e.m.execs.insert(exec.release()).first;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  Entry e(Call::cudaGraphLaunch, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (e.m.execs.count(graphExec) == 0) {
    e.m.report("cudaGraphLaunch: no such graph, or one that was destroyed");
    return Entry::done(cudaErrorInvalidValue);
  }
  if (stream->capturing) return Entry::done(cudaErrorStreamCaptureUnsupported);
  for (const Work& node : graphExec->nodes) {
    if (const cudaError_t error = e.m.enqueue(*stream, node, e.name()); error != cudaSuccess) return Entry::done(error);
  }
  graphExec->stream = stream;
  graphExec->seq = stream->enqueued;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Entry e(Call::cudaGraphDestroy, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (e.m.graphs.erase(graph) == 0) return Entry::done(cudaErrorInvalidValue);
  e.m.old_graphs.emplace_back(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  Entry e(Call::cudaGraphExecDestroy, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (e.m.execs.count(graphExec) == 0) {
    e.m.report("cudaGraphExecDestroy: no such graph, or one that was destroyed");
    return Entry::done(cudaErrorInvalidValue);
  }
  if (graphExec->stream != nullptr && graphExec->stream->done < graphExec->seq) {
    e.m.report("cudaGraphExecDestroy: a launch of the graph is in flight: a graph is pinned until its step has settled");
  }
  e.m.execs.erase(graphExec);
  e.m.old_execs.emplace_back(graphExec);
  return cudaSuccess;
}

}  // extern "C"
