package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
)

type usageExport struct {
	*app
	usageFlags
	cursor       usageCursor
	format, file string
}

func newUsageExport(a *app) *cobra.Command {
	o := &usageExport{app: a}
	c := &cobra.Command{
		Use: "export", Short: "Export usage records as JSON lines, CSV or CloudEvents", Args: noArgs, RunE: o.run,
		Long: `Write all usage records that match to standard output or a file: as JSON lines, as CSV
with a header row, or as one structured CloudEvent per line. The export has the records as
they are when the command begins, in constant memory for any number of them.

With --cursor-file, an export has only the final records that the exports before it with
this file lacked: it begins where the file says, or with the first record if there is no
such file. The file is replaced when the export is complete and its output is written: a
file is on disk, a pipe has taken everything. If anything fails before that, the file stays
as it is, and the next export has the same records again, with the same usage_id. So
repeating loses nothing, and an export that was complete is not repeated.

Discard the standard output of an export whose exit status is not 0, and repeat it. To
lose nothing if the program that reads a pipe fails, write to --file and process that.

A cursor belongs to the filters: give the same ones with the same cursor file each time.
After the server's data was restored from a backup, go on with a new cursor file, and with
--since the hour of the backup: the old cursor would pass over new records.

A file gets its name once it is complete; until then it is FILE.part. CURSORFILE.lock keeps
two exports from using a cursor file at the same time. In CSV, an apostrophe is ahead of
what a spreadsheet would take for a formula: = + - or @ at the start of a cell, or behind
a semicolon, tab or line end in it.`,
		Example: "  keygate usage export --cursor-file billing.cursor --file batch.jsonl\n" +
			"  keygate usage export --since 2026-03-01 --until 2026-04-01 --format csv --file march.csv",
	}
	f := c.Flags()
	o.add(f)
	f.StringVar(&o.format, "format", client.FormatJSONL, "`format`: jsonl (one JSON object per line), csv or cloudevents")
	f.StringVar(&o.file, "file", "", "`file` to create, with mode 0600; it must not exist")
	o.cursor.add(f)
	return c
}

// check checks the flags.
func (o *usageExport) check(c *cobra.Command) (err error) {
	if err := noneEmpty(c); err != nil {
		return err
	}
	if o.filter.Since, o.filter.Until, err = o.span.span(time.Now()); err != nil {
		return err
	}
	switch {
	case c.Flags().Changed("output"):
		return usagef("export does not take -o: use --format jsonl, csv or cloudevents")
	case !slices.Contains([]string{client.FormatJSONL, client.FormatCSV, client.FormatCloudEvents}, o.format):
		return usagef("--format must be jsonl, csv or cloudevents, not %q", o.format)
	case o.cursor.path != "" && samePath(o.cursor.path, o.file):
		return usagef("--cursor-file and --file must be two files")
	}
	return o.cursor.check(&o.usageFlags)
}

// samePath reports whether two paths name the same file, apart from links.
func samePath(x, y string) bool {
	ax, errX := filepath.Abs(x)
	ay, errY := filepath.Abs(y)
	return y != "" && errX == nil && errY == nil && ax == ay
}

func (o *usageExport) run(c *cobra.Command, _ []string) error {
	if err := o.check(c); err != nil {
		return err
	}
	api, err := o.connect()
	if err != nil {
		return err
	}
	if err := o.resolve(o.app, api); err != nil {
		return err
	}
	return o.cursor.with(func(cursor string) (string, error) { return o.export(c.Context(), api, cursor) })
}

// export writes the records behind a cursor, and returns the cursor behind them when the output is durable.
func (o *usageExport) export(ctx context.Context, api *client.Client, cursor string) (next string, err error) {
	part := o.file + ".part"
	out := o.Out
	var file *os.File
	if o.file != "" {
		if o.cursor.path != "" {
			// What an export that was killed has left. Its records come again.
			if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
				return "", err
			}
		}
		if file, err = createPart(o.file, part); err != nil {
			return "", err
		}
		out = file
	}
	x := o.exporter(out, o.format)
	err = x.copy(func() (body io.ReadCloser, err error) {
		body, next, err = o.cursor.open(ctx, api, o.format, o.filter, cursor)
		return body, err
	})
	x.clear()
	if err != nil {
		if file != nil {
			return "", errors.Join(err, file.Close(), os.Remove(part))
		}
		if x.bytes > 0 {
			err = fmt.Errorf("%w\nThe export is not complete: discard its output, and repeat it", err)
		}
		return "", err
	}
	if file == nil {
		return next, syncRegular(out)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(part))
	}
	if err := finishPart(part, o.file); err != nil {
		return "", err
	}
	return next, syncDir(filepath.Dir(o.file))
}
