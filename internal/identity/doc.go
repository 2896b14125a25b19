// Package identity makes the members of a job prove to each other that they belong to it. Ranks (package dist/tcp) and the launcher's
// agents (package dist/launch) speak TLS 1.3 with one key, which is derived from the job's secret. They exchange nothing with a peer that
// does not have it.
package identity
