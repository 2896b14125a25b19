// Package agree lets the members of a group that has failed agree on who goes on: all of them decide the same list, or
// none. It is a state machine: it sends through a function that it is given, never waits, has no clock and no lock.
//
// The agreement is Lamport's single-decree Paxos ("Paxos Made Simple", 2001) among the members of the old group. What is
// decided is the list of members of the new one. A member that asks for a new group tells all others that it is there and
// whom it can reach (Join). The first of those who are there leads: when it has heard of every member, or is told not to
// wait any longer (Hurry), it proposes those who are there and reach one another. Should the leader be lost, the next one
// finishes what it began. A list must be a quorum of the old group: more than half of its members, or exactly half with
// the first one among them. Any two quorums share a member, so two halves of a network that is cut never go on both, and
// a few ranks in a hurry never leave the many behind.
//
// MPI's ULFM (MPIX_Comm_shrink) leaves out those who are known to be dead, and trusts its failure detector; NCCL
// (ncclCommShrink) and PyTorch (shrink_group) want the caller to say who is to be left out, the same everywhere.
package agree
