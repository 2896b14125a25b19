// Command loader is the program at the beginning of bin/ringo-gpu: it unpacks what lies behind it and runs that (see package bundle).
package main
