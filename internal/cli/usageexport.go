package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	format, file, cursorFile string
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
	f.StringVar(&o.cursorFile, "cursor-file", "", "`file` with the cursor of the last complete export")
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
	case o.cursorFile == "":
		return nil
	case o.filter.State == "open":
		return usagef("--cursor-file cannot be used with --state open: open records change until they are final")
	case samePath(o.cursorFile, o.file):
		return usagef("--cursor-file and --file must be two files")
	}
	for _, flag := range [][2]string{{"since", o.span.since}, {"until", o.span.until}} {
		if _, exact := exactTime(flag[1]); flag[1] != "" && !exact {
			return usagef("--%s must be a time or a date with --cursor-file, such as 2026-03-01: the cursor belongs to the filters, and %q is another time in each export", flag[0], flag[1])
		}
	}
	return nil
}

// samePath reports whether two paths name the same file, apart from links.
func samePath(x, y string) bool {
	ax, errX := filepath.Abs(x)
	ay, errY := filepath.Abs(y)
	return y != "" && errX == nil && errY == nil && ax == ay
}

func (o *usageExport) run(c *cobra.Command, _ []string) (err error) {
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
	if o.cursorFile == "" {
		_, err := o.export(c.Context(), api, "")
		return err
	}
	cursor, err := openCursorFile(o.cursorFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cursor.close()) }()
	next, err := o.export(c.Context(), api, cursor.cursor)
	if err != nil {
		return err
	}
	if err := cursor.replace(next); err != nil {
		return fmt.Errorf("%w\nThe output is complete, but %s was not replaced: the next export has these records again", err, o.cursorFile)
	}
	return nil
}

// export writes the records behind a cursor, and returns the cursor behind them when the output is durable.
func (o *usageExport) export(ctx context.Context, api *client.Client, cursor string) (next string, err error) {
	part := o.file + ".part"
	out := o.Out
	var file *os.File
	if o.file != "" {
		if o.cursorFile != "" {
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
	err = x.copy(func() (io.ReadCloser, error) {
		body, after, err := api.OpenUsageExport(ctx, o.format, o.filter, cursor)
		if err == nil && after == "" && o.cursorFile != "" {
			return nil, errors.Join(errors.New("the response has no header X-Keygate-Cursor: does a proxy before the server remove it?"), body.Close())
		}
		next = after
		return body, o.explain(err)
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

// explain returns the error for a call with a cursor, in which a cursor that the server refuses is that of the file.
func (o *usageExport) explain(err error) error {
	var refused *client.Error
	if o.cursorFile == "" || !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity || refused.Field != "cursor" {
		return err
	}
	return fmt.Errorf("the cursor in %s belongs to an export with other filters or of another account: give the filters and the account of that export, or name another file to export everything again (%w)", o.cursorFile, err)
}

// syncRegular makes what was written durable if w is a regular file.
func syncRegular(w io.Writer) error {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	return f.Sync()
}
