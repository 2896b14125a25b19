// Command decode measures the time per token for a model of GPT-2's size: see README.md.
package main
