package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/kernel"
)

// cli is the command line; each command has a Run method.
type cli struct {
	Run     runCmd     `cmd:"" help:"Run a program as several ranks, on one host or several."`
	Viz     vizCmd     `cmd:"" help:"Draw the messages of a collective."`
	Bench   benchCmd   `cmd:"" help:"Measure collectives: latency, bandwidth, what is possible."`
	Ckpt    ckptCmd    `cmd:"" help:"List, verify, compare and convert checkpoints."`
	Compare compareCmd `cmd:"" help:"Compare the gradients of two trainings, such as of one on two layouts."`
	Trace   traceCmd   `cmd:"" help:"Join timelines of ranks, and sum them up."`
	Plot    plotCmd    `cmd:"" help:"Draw the values of several trainings together."`
	Topo    topoCmd    `cmd:"" help:"Show hosts, caches and links, and where to place ranks."`
	Doctor  doctorCmd  `cmd:"" help:"Show what was found here, what is missing, and how to get it."`
	Plan    planCmd    `cmd:"" help:"Predict the memory and traffic of training a transformer."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

func main() { os.Exit(ringo(os.Args[1:])) }

// ringo runs a command line and returns the exit status: 2 for a wrong command line.
func ringo(args []string) int {
	parser := kong.Must(new(cli), kong.Name("ringo"),
		kong.Description("Ringo trains neural networks in parallel, in pure Go."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	ctx, err := parser.Parse(singleDash(parser.Model.Node, args))
	if err != nil {
		fmt.Fprintf(os.Stderr, "ringo: %s\n", wrongFlags(err))
		return 2
	}
	if err = kernel.CPUError(); err == nil || ctx.Command() == "doctor" || ctx.Command() == "version" {
		err = ctx.Run()
	}
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*launch.ExitError](err)
	if !ok {
		exit = &launch.ExitError{Code: 1, Text: err.Error()}
	}
	if exit.Text != "" {
		fmt.Fprintf(os.Stderr, "ringo: %s\n", exit.Text)
	}
	return exit.Code
}

// wrongFlags returns kong's error of a command line, with flags as Go programs write them, and the command whose help to read.
func wrongFlags(err error) string {
	text := strings.ReplaceAll(err.Error(), `but got "EOL" (<EOL>)`, "and nothing follows")
	text = regexp.MustCompile(`(^|[ "])--(\w)`).ReplaceAllString(text, "$1-$2")
	command := "ringo"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		command = strings.TrimSpace("ringo " + parse.Context.Command())
	}
	command, _, _ = strings.Cut(command, " <") // cut its arguments off
	return fmt.Sprintf("%s (see %s -h)", text, command)
}

// singleDash changes -name to --name, because Go programs write flags with one dash and kong with two. It stops at the program to run,
// whose arguments are not ringo's.
func singleDash(node *kong.Node, args []string) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") {
			if command := child(node, arg); command != nil {
				node = command
			} else if !takesArgument(node) {
				return append(out, args[i:]...)
			}
			out = append(out, arg)
			continue
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flag := findFlag(node, name)
		switch {
		case flag == nil && (name == "" || digits(node, name)):
			return append(out, args[i:]...) // "--", -n4
		case flag == nil:
			return append(out, "--"+name) // unknown: kong reports it
		case flag.Name == name && !strings.HasPrefix(arg, "--"):
			arg = "-" + arg
		}
		if !hasValue && !flag.IsBool() && i+1 < len(args) {
			i++
			if strings.HasPrefix(args[i], "-") { // this is a value and not a flag
				arg = "--" + flag.Name + "=" + args[i]
			} else {
				out, arg = append(out, arg), args[i]
			}
		}
		out = append(out, arg)
	}
	return out
}

// digits reports whether a name is a flag of one letter with a number after it, such as n4.
func digits(node *kong.Node, name string) bool {
	_, err := strconv.Atoi(name[1:])
	return err == nil && findFlag(node, name[:1]) != nil
}

// takesArgument reports whether a command has an argument of its own, after which more flags may come.
func takesArgument(node *kong.Node) bool {
	return len(node.Positional) > 0 && node.Positional[0].PassthroughMode == kong.PassThroughModeNone
}

func child(node *kong.Node, name string) *kong.Node {
	for _, c := range node.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// findFlag returns the flag of a name, which may be long or one letter; nil if there is none.
func findFlag(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if f.Name == name || f.Short != 0 && string(f.Short) == name {
				return f
			}
		}
	}
	return nil
}
