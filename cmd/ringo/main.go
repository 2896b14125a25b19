package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/kernel"
)

// cli is the command line; each command has a Run method.
type cli struct {
	Run     runCmd     `cmd:"" help:"Run a program as several ranks, on one host or several."`
	Viz     vizCmds    `cmd:"" help:"Draw the messages of a collective, or a schedule of pipeline parallelism."`
	Bench   benchCmd   `cmd:"" help:"Measure collectives: latency, bandwidth, what is possible."`
	Ckpt    ckptCmd    `cmd:"" help:"List, verify, compare and convert checkpoints."`
	Compare compareCmd `cmd:"" help:"Compare the gradients of two trainings, such as of one on two layouts."`
	Trace   traceCmd   `cmd:"" help:"Join timelines of ranks, and sum them up."`
	Plot    plotCmd    `cmd:"" help:"Draw the values of several trainings together."`
	Topo    topoCmd    `cmd:"" help:"Show hosts, caches and links, and where to place ranks."`
	Doctor  doctorCmd  `cmd:"" help:"Show what was found here, what is missing, and how to get it."`
	Plan    planCmd    `cmd:"" help:"Predict the memory and traffic of training a transformer."`
	Sim     simCmd     `cmd:"" help:"Simulate collectives of thousands of ranks, on a network that is not there."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

func main() { os.Exit(ringo(os.Args[1:])) }

// newParser returns a parser into line.
func newParser(line *cli) *kong.Kong {
	return kong.Must(line, kong.Name("ringo"),
		kong.Description("Ringo trains neural networks in parallel, in pure Go."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Resolvers(kong.ResolverFunc(kubeflow)))
}

// ringo runs a command line and returns the exit status: 2 for a wrong command line.
func ringo(args []string) int {
	var line cli
	ctx, err := newParser(&line).Parse(longFlags(args))
	if err != nil {
		fmt.Fprintf(os.Stderr, "ringo: %s\n", wrongFlags(err))
		return 2
	}
	line.Run.Program = asTyped(line.Run.Program, args)
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
		lastWords(fmt.Sprintf("ringo: %s\n", printable(exit.Text, "\n\t")), exit.Code > 128)
	}
	return exit.Code
}

// lastWords prints why a command failed. Its reader may be a pager, which takes its time; but after a signal, and at another one, there may
// be none.
func lastWords(text string, signaled bool) {
	printed := make(chan struct{})
	go func() {
		fmt.Fprint(os.Stderr, text)
		close(printed)
	}()
	var limit <-chan time.Time
	if signaled {
		limit = time.After(2 * time.Second)
	}
	select {
	case <-printed:
	case <-limit:
	case <-interrupts():
	}
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

var (
	oneDash  = regexp.MustCompile(`^-[a-z][a-z-]`)
	negative = regexp.MustCompile(`^-[0-9.]`)
)

// longFlags changes -name to --name, because Go programs write flags with one dash and kong with two, and -name -2 to --name=-2.
func longFlags(args []string) []string {
	var out []string
	for i, arg := range args {
		switch {
		case oneDash.MatchString(arg):
			out = append(out, "-"+arg)
		case negative.MatchString(arg) && i > 0 && oneDash.MatchString(args[i-1]):
			out[len(out)-1] += "=" + arg
		default:
			out = append(out, arg)
		}
	}
	return out
}

// asTyped returns the end of the command line that longFlags made a program's arguments of, which are not ringo's.
func asTyped(program, args []string) []string {
	for i := range args {
		if slices.Equal(longFlags(args[i:]), program) {
			return args[i:]
		}
	}
	return nil
}
