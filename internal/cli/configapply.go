package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/fault"
)

// apply runs config apply.
func (o *configRun) apply(c *cobra.Command, args []string) error {
	if err := o.prepare(c, args); err != nil {
		return err
	}
	if o.dryRun || !o.anyDifferent() {
		return o.print(o.plan, o.dryRun)
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
// it asks for the name. Afterwards it checks that the differences are still those that it showed.
func (o *configRun) ask(ctx context.Context) error {
	changes := int64(0)
	for _, p := range o.plan {
		if o.write(o.Err, p, proposed); p.Action == createGateway || p.Action == updateGateway {
			changes++
		}
	}
	if o.set.dir != "" {
		o.Say("%s", o.totals(o.plan, proposed))
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
	for _, p := range o.plan {
		if p.Action != deleteGateway {
			continue
		}
		if err := o.Confirm(func() (terminal.Loss, error) { return lossOfGateway(ctx, o.api, p.GatewayID) }); err != nil {
			return err
		}
	}
	for _, p := range o.plan {
		if p.Action != updateGateway {
			continue
		}
		again := &planned{file: p.file}
		again.difference = difference{File: p.File, Action: p.Action, GatewayID: p.GatewayID}
		if err := o.look(ctx, again); err != nil {
			return o.about(p, err)
		}
		if again.etag != p.etag || !reflect.DeepEqual(again.difference, p.difference) {
			return o.about(p, fault.New(fault.PreconditionFailed, "%s was changed while the question was open, and nothing was applied: run the command again", p.label()))
		}
	}
	return nil
}

// applyAll applies the plan, and says what was done if that fails.
func (o *configRun) applyAll(ctx context.Context, asked bool) error {
	quiet := asked && o.ForPeople() && o.Width(o.Out) > 0 // the differences are on the screen already
	steps, step := 0, 0
	for _, p := range o.plan {
		if p.Action != keepGateway {
			steps++
		}
	}
	for i, p := range o.plan {
		if p.Action == keepGateway {
			continue
		}
		step++
		if err := o.applyOne(ctx, p); err != nil {
			o.sayDone(i, err)
			if i > 0 && !o.ForPeople() {
				if bad := o.print(o.plan[:i], false); bad != nil {
					return bad
				}
			}
			return o.about(p, err)
		}
		if o.ForPeople() && !quiet {
			o.write(o.Out, p, made)
		}
		if o.set.dir != "" || quiet || p.Action != updateGateway {
			o.Say("%s", terminal.Clean(p.sentence(step, steps)))
		}
	}
	if !o.ForPeople() {
		return o.print(o.plan, false)
	}
	if o.set.dir != "" {
		o.Say("%s", o.totals(o.plan, made))
	}
	return nil
}

// sentence says that p was carried out.
func (p *planned) sentence(step, steps int) string {
	counter := ""
	if steps > 1 {
		counter = fmt.Sprintf(" (%d of %d)", step, steps)
	}
	revision := ""
	if p.Revision != nil {
		revision = fmt.Sprintf(", revision %d", *p.Revision)
	}
	switch p.Action {
	case createGateway:
		return fmt.Sprintf("Created %s%s from %s%s.", p.label(), revision, p.File, counter)
	case deleteGateway:
		return fmt.Sprintf("Deleted %s%s.", p.label(), counter)
	default:
		return fmt.Sprintf("Applied %s to %s%s%s.", p.File, p.label(), revision, counter)
	}
}

// applyOne carries out the plan for one gateway. It fails if the gateway was changed since then.
func (o *configRun) applyOne(ctx context.Context, p *planned) error {
	var err error
	switch p.Action {
	case createGateway:
		err = o.create(ctx, p)
	case deleteGateway:
		_, err = inTurn(ctx, o.app, func() (*client.Gateway, error) {
			return o.api.DeleteGateway(ctx, p.GatewayID, client.IfMatch(p.etag))
		})
	default:
		var push *client.Push
		push, err = inTurn(ctx, o.app, func() (*client.Push, error) {
			return o.api.PushConfig(ctx, p.GatewayID, p.file.content, false, client.IfMatch(p.etag))
		})
		if err == nil {
			p.Push = push
		}
	}
	if err == nil && p.file != nil {
		p.hide()
	}
	if p.file != nil {
		err = o.mistakes(p.file.documentFile, err)
	}
	return errChanged(p, err)
}

// create creates a gateway from a file, with everything in it or not at all.
func (o *configRun) create(ctx context.Context, p *planned) error {
	g, err := inTurn(ctx, o.app, func() (*client.Gateway, error) { return o.api.CreateGatewayFromConfig(ctx, p.file.content) })
	if err != nil {
		return err
	}
	p.GatewayID, p.Revision = g.GatewayID, g.Revision
	return nil
}

// sayDone says which parts of the plan were carried out before the one with the index failed did.
func (o *configRun) sayDone(failed int, err error) {
	var done, left []string
	for i, p := range o.plan {
		switch name := p.stepName(); {
		case p.Action == keepGateway:
		case i < failed:
			done = append(done, name)
		case i > failed:
			left = append(left, name)
		}
	}
	var unreachable *client.UnreachableError
	if errors.As(err, &unreachable) {
		o.Say("%s", terminal.Clean("It is not known whether this was carried out: "+o.plan[failed].stepName()+". See keygate config diff."))
	}
	if o.set.dir == "" {
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

// stepName names p in lists of what was carried out.
func (p *planned) stepName() string {
	if p.Action == deleteGateway {
		return "deletion of " + p.label()
	}
	return p.File
}
