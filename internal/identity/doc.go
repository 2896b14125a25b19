// Package identity makes the members of a job know each other: the ranks (package dist/tcp) and the launcher's agents
// (package dist/launch) speak TLS 1.3 with one key, derived from the job's secret, and talk to nobody who lacks it.
package identity
