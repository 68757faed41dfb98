package command

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Scenario is a part of a benchmark that can be run without the others.
type Scenario[Run any] struct {
	Name  string // for the flag -run
	About string
	Run   Run
}

// Choose returns the scenarios with the names, which are separated by commas, in the order of the names; all of them for "".
func Choose[Run any](all []Scenario[Run], names string) ([]Scenario[Run], error) {
	if names == "" {
		return all, nil
	}
	var chosen []Scenario[Run]
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(s Scenario[Run]) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no scenario %q: see -help", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// PrintUsage prints the flags and the scenarios to standard error, for flag.Usage.
func PrintUsage[Run any](all []Scenario[Run]) {
	fmt.Fprintln(os.Stderr, "Flags:")
	flag.PrintDefaults()
	fmt.Fprintln(os.Stderr, "Scenarios:")
	for _, s := range all {
		fmt.Fprintf(os.Stderr, "  %s\n    \t%s\n", s.Name, s.About)
	}
}
