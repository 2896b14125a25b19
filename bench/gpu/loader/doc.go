// Command loader is the program at the beginning of bin/ringo-gpu: it unpacks the archive after it and runs that (see package bundle).
package main
