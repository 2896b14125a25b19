// Package netns makes hosts for tests: network namespaces of this machine, joined by a bridge.
//
// A process that runs in one of them sees its own loopback and one interface with an address of its own; it reaches the
// others over the bridge, and shares no abstract unix sockets with them. Host.Cut pulls the cable, Host.Mend plugs it in
// again. NewSlow joins two of them by a link with latency and a limited rate. They need Linux, root and the ip command of iproute2, and
// skip the test where one is missing.
package netns
