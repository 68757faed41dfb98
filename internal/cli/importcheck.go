package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/moving"
	"github.com/keygate/keygate/internal/plan"
)

// importCheck is a run of import check.
type importCheck struct {
	*app
	dir, log, hostname string
}

func newImportCheck(a *app) *cobra.Command {
	o := &importCheck{app: a}
	c := &cobra.Command{
		Use: "check --log FILE|-", Short: "Say what an access log of the old gateway would get from the new routes", Args: atMost(0),
		Long: `Run an access log of the old gateway against the configuration files that an import wrote, or that
you wrote. The log has lines of nginx and Kong (combined), of Kong's log plugins (JSON), or of
Traefik (JSON). No server is called.

It prints what would differ, a line for each method and path, the most requests first:
STATUS METHOD PATH COUNT. The status is 404 if no route takes the path, 405 if none takes the
method, 400 if the path itself is refused, and "route" if another route of the old gateway takes
it: then the two follow. Keys, addresses and limits are not looked at. The exit status is 3 if
anything differs.`,
		Example: "  keygate import check --log /var/log/kong/access.log\n  zcat access.log.*.gz | keygate import check --log - --hostname api.example.com",
		RunE:    o.run,
	}
	c.Flags().StringVar(&o.log, "log", "", "access log: a `file`, or - for standard input")
	c.Flags().StringVar(&o.dir, "dir", defaultImportDir, "`directory` that the import wrote to")
	c.Flags().StringVar(&o.hostname, "hostname", "", "`name` of the host of requests whose lines have none, as in combined logs (default: the gateway without hostname)")
	return c
}

func (o *importCheck) run(*cobra.Command, []string) error {
	if o.log == "" {
		return usagef("no log given: give the access log of the old gateway, as in keygate import check --log access.log")
	}
	check, err := o.prepare()
	if err != nil {
		return err
	}
	if o.log == "-" {
		err = readLog(o.In, check)
	} else {
		var f *os.File
		if f, err = os.Open(o.log); err == nil {
			err = errors.Join(readLog(f, check), f.Close())
		}
	}
	if err != nil {
		return err
	}
	return o.print(check)
}

// prepare reads the files of the directory.
func (o *importCheck) prepare() (*moving.Check, error) {
	names, err := filepath.Glob(filepath.Join(o.dir, "gateways", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var documents []*gateway.Document
	for _, name := range names {
		d, err := o.readDocument(name)
		if err != nil {
			return nil, err
		}
		// What a variable has is no path and no method.
		content, err := gateway.ResolveEnv(d.content, func(string) (string, bool) { return "variable.invalid", true })
		if err != nil {
			return nil, o.mistakes(d, err)
		}
		if plan.IsFile(content) {
			continue
		}
		one, err := gateway.ParseDocument(content)
		if err != nil {
			return nil, o.mistakes(d, err)
		}
		documents = append(documents, one)
	}
	if len(documents) == 0 {
		return nil, usagef("%s has no configuration files of gateways: import first, or name the directory with --dir", terminal.Clean(filepath.Join(o.dir, "gateways")))
	}
	var origins []moving.Origin
	content, err := o.ReadInput(filepath.Join(o.dir, originsFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if origins, err = moving.ReadOrigins(content); err != nil {
			return nil, fmt.Errorf("%s: %w", terminal.Clean(filepath.Join(o.dir, originsFile)), err)
		}
	}
	return moving.NewCheck(documents, origins, o.hostname)
}

// readLog adds the lines of a log, each of which is held alone.
func readLog(from io.Reader, check *moving.Check) error {
	r := bufio.NewReaderSize(from, moving.MaxLogLine)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case err == nil:
			check.Add(line)
		case errors.Is(err, bufio.ErrBufferFull):
			check.AddLong()
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.ReadSlice('\n')
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		case errors.Is(err, io.EOF):
			check.Add(line)
			return nil
		default:
			return err
		}
	}
}

// print prints what was found.
func (o *importCheck) print(check *moving.Check) error {
	findings := check.Findings()
	if !o.ForPeople() {
		if err := o.PrintData(findings); err != nil {
			return err
		}
	}
	different := check.Beyond
	for _, f := range findings {
		different += f.Requests
		if !o.ForPeople() {
			continue
		}
		line := fmt.Sprintf("%s %s %s%s %d", f.Status, f.Method, f.Host, f.Path, f.Requests)
		if f.Status == moving.OtherRoute {
			line += fmt.Sprintf(" (%s in place of %s)", f.Is, f.Was)
		}
		if _, err := fmt.Fprintln(o.Out, terminal.Clean(line)); err != nil {
			return err
		}
	}
	if check.Unread > 0 {
		o.Say("%s could not be read, the first at line %d: a log has lines of nginx (combined), Kong or Traefik (JSON).", terminal.NumberOf(check.Unread, "line", "lines"), check.FirstUnread)
	}
	if check.Beyond > 0 {
		o.Say("%s of more than %d different ones are not listed.", terminal.NumberOf(check.Beyond, "request", "requests"), moving.MaxFindings)
	}
	if check.Requests == 0 && check.Unread > 0 {
		return fault.New(fault.ValidationFailed, "the log has no line that could be read")
	}
	o.Say("%d of %s would differ.", different, terminal.NumberOf(check.Requests, "request", "requests"))
	if different > 0 {
		return errDifferent
	}
	return nil
}
