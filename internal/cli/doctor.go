package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
)

// errProblems reports that doctor found problems. They are on standard output.
var errProblems = errors.New("problems found")

func newDoctor(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the settings of a server, its machine and its stores",
		Long: `Check the settings of a server before it uses them: the data directory, keys, addresses,
certificates and limits of this machine, and PostgreSQL and Redis if they are set. It takes
the flags, the environment and the file of "keygate serve", and should run as the same user.
It changes nothing, and a server may be running.

Each line says ok, warning or problem, and what to do. The exit status is 1 if there is a
problem, else 0.`,
		Example: "  keygate doctor --config keygate.yaml\n  keygate doctor -o json | jq '.findings[] | select(.status != \"ok\")'",
		Args:    noArgs,
	}
	return a.withSettings(c, func(ctx context.Context, settings *config.Config, _ *slog.Logger, _ []string) error {
		return a.diagnose(ctx, settings)
	})
}

// diagnosis is the output of doctor for programs.
type diagnosis struct {
	Problems int              `json:"problems"`
	Warnings int              `json:"warnings"`
	Findings []server.Finding `json:"findings"`
}

// diagnose prints what is found about settings. The error is errProblems if there is a problem.
func (a *app) diagnose(ctx context.Context, settings *config.Config) error {
	d := diagnosis{Findings: server.Examine(ctx, settings)}
	for _, f := range d.Findings {
		switch f.Status {
		case server.FindingProblem:
			d.Problems++
		case server.FindingWarning:
			d.Warnings++
		case server.FindingOK:
		}
	}
	if err := a.printDiagnosis(&d); err != nil {
		return err
	}
	if d.Problems > 0 {
		return errProblems
	}
	return nil
}

func (a *app) printDiagnosis(d *diagnosis) error {
	if !a.ForPeople() {
		return a.PrintData(d)
	}
	colours, width, longest := a.Colours(a.Out), 0, 0
	if a.Fitted() {
		width = a.Width(a.Out)
	}
	for _, f := range d.Findings {
		longest = max(longest, terminal.TextWidth(f.Check))
	}
	var b strings.Builder
	for _, f := range d.Findings {
		status := fmt.Sprintf("%-7s", f.Status)
		head := status + strings.Repeat(" ", terminal.Gap) + f.Check + strings.Repeat(" ", longest-terminal.TextWidth(f.Check)+terminal.Gap)
		line := strings.TrimPrefix(terminal.Fold(head+terminal.Clean(f.Message), width, terminal.TextWidth(head)), status)
		b.WriteString(styleOfFinding(f.Status).Paint(colours, status) + line + "\n")
		if f.Remedy != "" {
			head = strings.Repeat(" ", terminal.TextWidth(head))
			b.WriteString(terminal.Fold(head+"→ "+terminal.Clean(f.Remedy), width, terminal.TextWidth(head)+2) + "\n")
		}
	}
	fmt.Fprintf(&b, "\n%s, %s\n", terminal.NumberOf(int64(d.Problems), "problem", "problems"), terminal.NumberOf(int64(d.Warnings), "warning", "warnings"))
	_, err := fmt.Fprint(a.Out, b.String())
	return err
}

func styleOfFinding(s server.FindingStatus) terminal.Style {
	switch s {
	case server.FindingProblem:
		return terminal.Red
	case server.FindingWarning:
		return terminal.Yellow
	default:
		return terminal.Green
	}
}
