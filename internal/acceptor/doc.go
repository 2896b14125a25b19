// Package acceptor accepts the connections of a rendezvous: of ranks (package dist/tcp), and of the launcher's nodes (package
// dist/launch). It holds a bounded number of connections that have not proved that they belong to the job. It logs what it
// refuses, once for each address and reason, and the job waits on.
package acceptor
