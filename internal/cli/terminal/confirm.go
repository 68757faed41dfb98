package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrCancelled reports that a person did not confirm a command. Standard error says so.
var ErrCancelled = errors.New("cancelled")

// Loss is what a command is about to destroy.
type Loss struct {
	Verb string   // what the command does: delete or revoke
	What string   // such as: gateway orders (gw_…)
	With []string // what is lost with it
	Name string   // to be typed to confirm; "" if y is enough
}

// Asks reports whether a command has to ask: a person is at a terminal, and --yes was not given.
func (c *Console) Asks() bool {
	_, typed := IsTerminal(c.In)
	_, seen := IsTerminal(c.Err)
	return !c.Yes && typed && seen
}

// Confirm asks a person at a terminal whether to go on, and returns ErrCancelled if not.
// Elsewhere, and with --yes, it does nothing. find is only called to ask.
func (c *Console) Confirm(find func() (Loss, error)) error {
	if !c.Asks() {
		return nil
	}
	l, err := find()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "This %ss %s", l.Verb, Clean(l.What))
	if len(l.With) == 0 {
		fmt.Fprintln(c.Err, ".")
	} else {
		fmt.Fprintln(c.Err, ":")
	}
	for _, line := range l.With {
		c.Say("  %s", Clean(line))
	}
	if l.Name != "" {
		return c.Answered("Type its name to confirm: ", func(answer string) bool { return answer == strings.TrimSpace(l.Name) })
	}
	return c.Answered(title(l.Verb)+" it? [y/N] ", IsYes)
}

// IsYes reports whether an answer is a yes.
func IsYes(answer string) bool {
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes")
}

// Answered asks a question and returns ErrCancelled unless the answer is accepted.
func (c *Console) Answered(question string, accepted func(answer string) bool) error {
	fmt.Fprint(c.Err, question)
	answer, err := bufio.NewReader(io.LimitReader(c.In, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if errors.Is(err, io.EOF) {
		fmt.Fprintln(c.Err) // the answer did not end the line
	}
	if !accepted(strings.TrimSpace(answer)) {
		fmt.Fprintln(c.Err, "Cancelled.")
		return ErrCancelled
	}
	return nil
}

// Destroyed says on standard error what a command destroyed. show prints the record that the server
// returned. A table on a terminal is omitted, since it would only repeat the sentence.
func (c *Console) Destroyed(verb, what string, show func() error) error {
	if !c.ForPeople() || c.Width(c.Out) == 0 {
		if err := show(); err != nil {
			return err
		}
	}
	c.Say("%sd %s.", title(verb), Clean(what))
	return nil
}

// title returns a verb with a capital letter.
func title(verb string) string { return strings.ToUpper(verb[:1]) + verb[1:] }
