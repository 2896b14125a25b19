// Package acceptor accepts the connections of a rendezvous: those of ranks (package dist/tcp), and those of the launcher's nodes (package
// dist/launch). The number of connections that have not proved yet that they belong to the job is limited. Refused connections are
// logged, once for each address and reason, and the job keeps waiting.
package acceptor
