// Package netns makes hosts for tests: network namespaces of this machine, joined by a bridge.
//
// A process in one of them has its own loopback and one interface with its own address. It reaches the others over the bridge, and shares
// no abstract Unix sockets with them. Host.Cut pulls the cable, Host.Mend plugs it in again. NewSlow joins two hosts by a link with
// latency and a limited rate. They need Linux, root and the ip command of iproute2. If one of these is missing, they skip the test.
package netns
