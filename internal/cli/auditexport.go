package cli

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"os"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
)

type auditExport struct {
	storeCommand
	auditFlags
	format, file, account string
	blocks                bool
	limit                 int
}

func newAuditExport(a *app) *cobra.Command {
	o := &auditExport{storeCommand: storeCommand{app: a}}
	c := &cobra.Command{
		Use:   "export",
		Short: "Export the audit log as JSON lines or CSV, or its sealed blocks for audit-log verify",
		Long: `Write the records of the audit log, oldest first, to standard output or a file, as
JSON lines or as CSV with a header row. The export has the log as it is when the
command begins, in constant memory for any number of records. In CSV, an
apostrophe is ahead of what a spreadsheet would take for a formula: = + - or @ at the
start of a cell, or behind a semicolon, tab or line end in it.

A file gets its name once it is complete; until then it is FILE.part. If the export
breaks off, the exit status is not 0, what was written ends with a complete record,
and a message says with which --since another export goes on. Both may have the
records of some seconds; the request_id tells them apart.

With --blocks, write the sealed blocks of the log and their digests, as they are in
the store on this machine. "audit-log verify FILE" can check such a file at any time
and on any machine. --blocks reads the store directly; a server may be running.`,
		Example: "  keygate audit-log export --since 2026-03-01 --until 2026-04-01 --format csv --file march.csv\n" +
			"  keygate audit-log export --blocks --data-dir /var/lib/keygate --file blocks.jsonl",
		Args: noArgs, RunE: o.run,
	}
	f := c.Flags()
	o.add(f)
	f.IntVar(&o.limit, "limit", 0, "export only the first `n` records; 0 means all")
	f.StringVar(&o.format, "format", "jsonl", "`format`: jsonl (one JSON object per line) or csv")
	f.StringVar(&o.file, "file", "", "`file` to create, with mode 0600; it must not exist")
	f.BoolVar(&o.blocks, "blocks", false, "export the sealed blocks of the store on this machine")
	f.StringVar(&o.account, "account", "default", "with --blocks, `name` of the account, or its identifier after it was deleted")
	o.loader = config.Register(f)
	return c
}

func (o *auditExport) run(c *cobra.Command, _ []string) (err error) {
	if err := o.read(c); err != nil {
		return err
	}
	if c.Flags().Changed("output") {
		return usagef("export does not take -o: use --format jsonl or --format csv")
	}
	if o.blocks {
		return o.exportBlocks(c)
	}
	for _, flag := range []string{"account", "data-dir"} {
		if c.Flags().Changed(flag) {
			return usagef("--%s requires --blocks: without it, records come from a server", flag)
		}
	}
	if o.format != client.FormatJSONL && o.format != client.FormatCSV {
		return usagef("--format must be jsonl or csv, not %q", o.format)
	}
	api, err := o.list(&o.filter.ListOptions, o.limit)
	if err != nil {
		return err
	}
	if err := o.identify(api, o.records()); err != nil {
		return err
	}
	return o.exportRecords(c.Context(), api)
}

func (o *auditExport) exportBlocks(c *cobra.Command) error {
	for _, flag := range []string{"kind", "outcome", "key-prefix", "key-id", "gateway", "actor", "since", "until", "limit", "format"} {
		if c.Flags().Changed(flag) {
			return usagef("--%s cannot be used with --blocks: only complete blocks can be verified", flag)
		}
	}
	settings, log, err := o.load()
	if err != nil {
		return err
	}
	return o.writeTo(o.file, func(w io.Writer) error { return server.ExportAudit(c.Context(), settings, log, o.account, w) })
}

// writeTo calls write with a new file, or with standard output if file is "". If
// write fails, the file is removed.
func (a *app) writeTo(file string, write func(io.Writer) error) error {
	if file == "" {
		return buffered(a.Out, write)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(buffered(f, write), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

func buffered(out io.Writer, write func(io.Writer) error) error {
	b := bufio.NewWriter(out)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}

// firstOf returns the first n records, or all of them if n is 0.
func firstOf[T any](n int, records iter.Seq2[T, error]) iter.Seq2[T, error] {
	if n <= 0 {
		return records
	}
	return func(yield func(T, error) bool) {
		left := n
		for r, err := range records {
			if !yield(r, err) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}
