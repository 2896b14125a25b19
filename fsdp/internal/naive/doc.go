// Package naive is fsdp.Naive: the plain version of fsdp, which is tested against it. So it shares no code with fsdp.
package naive
