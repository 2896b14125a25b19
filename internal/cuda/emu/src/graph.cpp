// Capture of streams into graphs. A graph keeps who comes after whom, and every
// launch runs its nodes in another order that respects it: a wait that was left
// out shows.
#include "core.h"
#include <algorithm>

Result unsafe() {
  Result r = Ok;
  for (auto& c : S.captures)
    if (c->mode == Capture::Global || (c->mode == Capture::ThreadLocal && c->thread == std::this_thread::get_id()))
      c->broken = true, r = CaptureUnsupported;
  return r;
}
void end_capture(Capture& c) {
  c.ended = true;
  for (auto& s : c.streams) s->capture = nullptr, s->frontier.clear();
  c.streams.clear();
  for (auto i = S.captures.begin(); i != S.captures.end(); ++i)
    if (i->get() == &c) return (void)S.captures.erase(i);
}

API Result cuStreamBeginCapture_v2(void* h, int mode) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  auto s = stream_of(h);
  if (!s || s->device != d) return InvalidHandle;
  if (mode < 0 || mode > 2) return InvalidValue;
  if (s->capture) return CaptureUnsupported;
  auto c = std::make_shared<Capture>();
  c->origin = s.get();
  c->thread = std::this_thread::get_id();
  c->streams.push_back(s);
  c->mode = mode;
  s->capture = c;
  s->frontier.clear();
  S.captures.insert(c);
  return Ok;
}

// before marks all nodes that come before those in front.
static std::vector<bool> before(const Graph& g, const std::vector<int>& front) {
  std::vector<bool> seen(g.nodes.size());
  std::vector<int> todo = front;
  while (!todo.empty()) {
    int n = todo.back();
    todo.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    todo.insert(todo.end(), g.nodes[n].deps.begin(), g.nodes[n].deps.end());
  }
  return seen;
}

API Result cuStreamEndCapture(void* h, void** graph) {
  Lock l;
  *graph = nullptr;
  auto s = stream_of(h);
  if (!s) return InvalidValue;
  if (!s->capture) return IllegalState;
  auto c = s->capture;
  if (c->origin != s.get()) return CaptureUnmatched;
  if (c->mode != Capture::Relaxed && c->thread != std::this_thread::get_id()) {
    end_capture(*c);  // as a driver of CUDA 13.0 did
    return CaptureWrongThread;
  }
  auto joined = before(c->graph, s->frontier);
  bool all = std::all_of(joined.begin(), joined.end(), [](bool b) { return b; });
  end_capture(*c);
  if (c->broken) return CaptureInvalidated;
  if (!all) return CaptureUnjoined;
  auto g = std::make_shared<Graph>(c->graph);
  S.graphs[g.get()] = g;
  *graph = g.get();
  return Ok;
}
// The nodes that the next one would come after: behind a launch, the launch.
API Result cuStreamGetCaptureInfo_v2(void* h, int* status, uint64_t* id, void** graph, void*** nodes, size_t* n) {
  Lock l;
  auto s = stream_of(h);
  if (!s) return InvalidHandle;
  *status = !s->capture ? 0 : s->capture->broken ? 2 : 1;
  if (*status != 1) return Ok;
  s->ahead.clear();
  for (int i : s->frontier) s->ahead.push_back((void*)s->capture->graph.nodes[i].id);
  if (id) *id = (uint64_t)s->capture.get();
  if (graph) *graph = nullptr;
  if (nodes) *nodes = s->ahead.data();
  if (n) *n = s->ahead.size();
  return Ok;
}
API Result cuStreamIsCapturing(void* h, int* status) {
  Lock l;
  auto s = stream_of(h);
  if (!s) return InvalidHandle;
  *status = !s->capture ? 0 : s->capture->broken ? 2 : 1;
  return Ok;
}

Result wait_in_capture(const std::shared_ptr<Stream>& s, const std::shared_ptr<Event>& e) {
  if (!e->capture) {
    if (!e->mark) return Ok;
    s->capture->broken = true;
    return CaptureIsolation;
  }
  if (e->capture->ended) return InvalidValue;
  if (s->capture && s->capture != e->capture) return CaptureMerge;
  if (!s->capture) {
    s->capture = e->capture;
    s->frontier.clear();
    e->capture->streams.push_back(s);
  }
  for (int n : e->frontier)
    if (std::find(s->frontier.begin(), s->frontier.end(), n) == s->frontier.end()) s->frontier.push_back(n);
  return Ok;
}

Result run_graph(const Graph& g, Stream& s) {
  std::vector<int> missing(g.nodes.size()), ready;
  std::vector<std::vector<int>> after(g.nodes.size());
  for (size_t i = 0; i < g.nodes.size(); i++) {
    missing[i] = (int)g.nodes[i].deps.size();
    for (int d : g.nodes[i].deps) after[d].push_back((int)i);
    if (!missing[i]) ready.push_back((int)i);
  }
  while (!ready.empty()) {
    size_t k = s.random() % ready.size();
    int n = ready[k];
    ready[k] = ready.back();
    ready.pop_back();
    if (Result r = g.nodes[n].op.run(s)) return r;
    for (int m : after[n])
      if (!--missing[m]) ready.push_back(m);
  }
  return Ok;
}

API Result cuGraphGetNodes(void* h, void**, size_t* n) {
  Lock l;
  auto i = S.graphs.find(h);
  if (i == S.graphs.end()) return InvalidValue;
  *n = i->second->nodes.size();
  return Ok;
}
API Result cuGraphInstantiateWithFlags(void** exec, void* h, unsigned long long) {
  Lock l;
  auto i = S.graphs.find(h);
  if (i == S.graphs.end()) return InvalidValue;
  auto x = std::make_shared<Graph>(*i->second);
  S.execs[x.get()] = x;
  *exec = x.get();
  return Ok;
}
API Result cuGraphDestroy(void* h) {
  Lock l;
  return S.graphs.erase(h) ? Ok : InvalidValue;
}
API Result cuGraphExecDestroy(void* h) {
  Lock l;
  return S.execs.erase(h) ? Ok : InvalidValue;
}
static Node* node_of(Graph& g, void* h) {
  for (auto& n : g.nodes)
    if (n.id == (uint64_t)h) return &n;
  return nullptr;
}

struct KernelNodeParams {
  void* func;
  unsigned grid[3], block[3], shared;
  void **params, **extra;
  void *kern, *ctx;
};
// What was launched before keeps its parameters: it has a copy of the graph.
API Result cuGraphExecKernelNodeSetParams_v2(void* h, void* node, const KernelNodeParams* p) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  auto i = S.execs.find(h);
  if (i == S.execs.end() || p->extra) return InvalidValue;
  bool there = false;  // the graph that the node is in must still be
  for (auto& g : S.graphs) there = there || node_of(*g.second, node);
  if (!there || !node_of(*i->second, node)) return InvalidValue;
  if (i->second.use_count() > 1) i->second = std::make_shared<Graph>(*i->second);
  Node* n = node_of(*i->second, node);
  Op op;
  if (Result r = make_launch(p->func, p->grid, p->block, p->shared, p->params, d, &op)) return r;
  if (op.name != n->op.name) return InvalidValue;  // not the kernel that was captured
  n->op = std::move(op);
  return Ok;
}
API Result cuGraphLaunch(void* h, void* hs) {
  Lock l;
  int d;
  if (Result r = usable(&d)) return r;
  auto i = S.execs.find(h);
  auto s = stream_of(hs);
  if (i == S.execs.end() || !s || s->device != d) return InvalidHandle;
  auto g = i->second;
  return enqueue(s, {"graph", [g](Stream& t) { return run_graph(*g, t); }, false});
}
