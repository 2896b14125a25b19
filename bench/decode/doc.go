// Command decode measures what a token of text costs a model of GPT-2's size: see README.md.
package main
