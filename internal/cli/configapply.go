package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/client/apply"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// apply runs config apply.
func (o *configRun) apply(c *cobra.Command, args []string) error {
	if err := o.prepare(c, args); err != nil {
		return err
	}
	if o.dryRun || !o.anyDifferent() {
		return o.print(o.differences, o.dryRun)
	}
	asked := o.Asks()
	if asked {
		if err := o.ask(c.Context()); err != nil {
			return err
		}
	}
	return o.applyAll(c.Context(), asked)
}

// ask shows the differences and asks whether to apply them; for each gateway that is to be deleted
// it asks for the name. Afterwards it checks that the differences are still the same.
func (o *configRun) ask(ctx context.Context) error {
	changes := int64(0)
	for _, d := range o.differences {
		if o.write(o.Err, d, proposed); d.Action == apply.Create || d.Action == apply.Update {
			changes++
		}
	}
	if o.isList() {
		o.Say("%s", o.totals(o.differences, proposed))
	}
	if changes > 0 {
		question := "Apply it? [y/N] "
		if changes > 1 {
			question = fmt.Sprintf("Apply all %d? [y/N] ", changes)
		}
		if err := o.Answered(question, terminal.IsYes); err != nil {
			return err
		}
	}
	gateway := gatewayDestroyer()
	for _, d := range o.differences {
		if d.Action != apply.Delete {
			continue
		}
		loss := func() (terminal.Loss, error) { return gateway.loss(ctx, o.api, d.GatewayID) }
		if d.Kind != apply.Gateway {
			loss = func() (terminal.Loss, error) { return terminal.Loss{Verb: "delete", What: d.Label()}, nil } // nothing has it
		}
		if err := o.Confirm(loss); err != nil {
			return err
		}
	}
	for _, d := range o.differences {
		if err := o.applier.Changed(ctx, d); err != nil {
			return o.about(stepName(d), err)
		}
	}
	return nil
}

// applyAll applies the differences, and says what was done if that fails.
func (o *configRun) applyAll(ctx context.Context, asked bool) error {
	quiet := asked && o.ForPeople() && o.Width(o.Out) > 0 // the differences are on the screen already
	steps, step := 0, 0
	for _, d := range o.differences {
		if d.Action != apply.Keep {
			steps++
		}
	}
	for i, d := range o.differences {
		if d.Action == apply.Keep {
			continue
		}
		step++
		if err := o.applyOne(ctx, d); err != nil {
			o.sayDone(i, err)
			if i > 0 && !o.ForPeople() {
				if bad := o.print(o.differences[:i], false); bad != nil {
					return bad
				}
			}
			return o.about(stepName(d), err)
		}
		if o.ForPeople() && !quiet {
			o.write(o.Out, d, made)
		}
		if o.isList() || quiet || d.Action != apply.Update {
			o.Say("%s", terminal.Clean(sentence(d, step, steps)))
		}
	}
	if !o.ForPeople() {
		return o.print(o.differences, false)
	}
	if o.isList() {
		o.Say("%s", o.totals(o.differences, made))
	}
	return nil
}

// sentence says that d was carried out.
func sentence(d *apply.Difference, step, steps int) string {
	counter := ""
	if steps > 1 {
		counter = fmt.Sprintf(" (%d of %d)", step, steps)
	}
	revision := ""
	if d.Revision != nil {
		revision = fmt.Sprintf(", revision %d", *d.Revision)
	}
	switch d.Action {
	case apply.Create:
		return fmt.Sprintf("Created %s%s from %s%s.", d.Label(), revision, d.File, counter)
	case apply.Delete:
		return fmt.Sprintf("Deleted %s%s.", d.Label(), counter)
	default:
		return fmt.Sprintf("Applied %s to %s%s%s.", d.File, d.Label(), revision, counter)
	}
}

// applyOne applies one difference, and prints what is wrong with its file.
func (o *configRun) applyOne(ctx context.Context, d *apply.Difference) error {
	err := o.applier.Apply(ctx, d)
	var failed *apply.FileError
	if errors.As(err, &failed) {
		return o.mistakes(documentOf(failed), failed.Err)
	}
	return err
}

// about names the step that failed in an error, if there are several.
func (o *configRun) about(step string, err error) error {
	var printed *mistakesError
	if !o.isList() || errors.As(err, &printed) {
		return err
	}
	lines := messages(err)
	return &mistakesError{step + ": " + strings.Join(lines, "\n"), len(lines), err}
}

// sayDone says which differences were applied before the difference with the index failed.
func (o *configRun) sayDone(failed int, err error) {
	var done, left []string
	for i, d := range o.differences {
		switch name := stepName(d); {
		case d.Action == apply.Keep:
		case i < failed:
			done = append(done, name)
		case i > failed:
			left = append(left, name)
		}
	}
	var unreachable *client.UnreachableError
	if errors.As(err, &unreachable) {
		o.Say("%s", terminal.Clean("It is not known whether this was carried out: "+stepName(o.differences[failed])+". See keygate config diff."))
	}
	if !o.isList() {
		return
	}
	if len(done) == 0 {
		o.Say("Applied before the failure: nothing.")
	} else {
		o.Say("%s", terminal.Clean("Applied before the failure: "+shortList(done)+"."))
	}
	if len(left) > 0 {
		o.Say("%s", terminal.Clean("Not applied after the failure: "+shortList(left)+"."))
	}
}

// shortList joins the first names of a list, and says how many more there are.
func shortList(names []string) string {
	if more := len(names) - maxCandidates; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxCandidates], ", "), more)
	}
	return strings.Join(names, ", ")
}

// stepName names d in lists of what was carried out.
func stepName(d *apply.Difference) string {
	switch {
	case d.Action == apply.Delete:
		return "deletion of " + d.Label()
	case d.Kind == apply.Plan && d.Late():
		return "limits of new gateways in plan " + d.Name
	case d.Kind != apply.Gateway:
		return string(d.Kind) + " " + d.Name
	}
	return d.File
}
