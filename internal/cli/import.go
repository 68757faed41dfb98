package cli

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/moving"
)

func newImport(a *app) *cobra.Command {
	return newGroup("import", "Move in from another gateway", newImportKong(a), newImportUnkey(a), newImportCheck(a))
}

// defaultImportDir is where an import writes.
const defaultImportDir = "keygate-import"

// originsFile is the file that says where routes come from, for import check.
const originsFile = "origins.json"

// importRun is a run of an import command.
type importRun struct {
	*app
	dir   string
	force bool
	apply bool
}

// aboutImport is the part of help texts about what an import writes.
const aboutImport = `It prints a report, a line for each object: carried, carried with a change (why), or not
carried (why; what to do). It writes configuration files to gateways below the directory of
--dir, and keys.json, which has the SHA-256 of keys and not the keys. Read both. No server is
called, unless --apply is given: then the files are applied and the keys imported, as config
apply and keys import do.`

func (o *importRun) command(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.dir, "dir", defaultImportDir, "`directory` for the files, which is created")
	c.Flags().BoolVar(&o.force, "force", false, "overwrite files")
	c.Flags().BoolVar(&o.apply, "apply", false, "apply the configuration files to the server, and import the keys")
	return o.confirmFlag(c)
}

func newImportKong(a *app) *cobra.Command {
	o := &importRun{app: a}
	return o.command(&cobra.Command{
		Use: "kong FILE|-...", Short: "Turn files of Kong (decK) into configuration files and keys",
		Long: `Turn files of Kong into configuration files and keys. The files are those of decK, in the
formats 1.1 and 3.0: deck gateway dump -o kong.yaml. Several files together describe one Kong.

` + aboutImport + `

A route whose credential is not carried is left out, and its path is closed where another
route would take its requests: no request passes that needed more in Kong.`,
		Example: "  keygate import kong kong.yaml\n  keygate import kong kong.yaml --dir moving --apply",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no file given: give the files that deck gateway dump wrote, as in keygate import kong kong.yaml")
			}
			var decks []*moving.Deck
			for _, name := range args {
				d, err := o.readDocument(name)
				if err != nil {
					return err
				}
				deck, err := moving.ReadKong(d.name, d.content)
				if err != nil {
					return o.mistakes(d, err)
				}
				decks = append(decks, deck)
			}
			result, err := moving.Kong(decks...)
			if err != nil {
				return err
			}
			return o.finish(c, result)
		},
	})
}

func newImportUnkey(a *app) *cobra.Command {
	o := &importRun{app: a}
	scope := ""
	c := o.command(&cobra.Command{
		Use: "unkey FILE|-", Short: "Turn keys of Unkey into keys to import", Args: atMost(1),
		Long: `Turn keys of Unkey into keys to import. The file has the pages that listKeys of Unkey's API v1
or v2 responds with. They have the keys themselves only with decrypt: true, of recoverable
keys; other keys need their hash.

` + aboutImport,
		Example: "  keygate import unkey pages.json\n  keygate import unkey pages.json --scope read",
		RunE: func(c *cobra.Command, args []string) error {
			name, err := fileArgument(args)
			if err != nil {
				return err
			}
			d, err := o.readDocument(name)
			if err != nil {
				return err
			}
			result, err := moving.Unkey(moving.UnkeyConfig{Now: time.Now(), Scope: scope}, d.name, d.content)
			if err != nil {
				return o.mistakes(d, err)
			}
			return o.finish(c, result)
		},
	})
	c.Flags().StringVar(&scope, "scope", "", "`scope` of every key, also of those with permissions, which are left out without it (default: admin, which allows every method)")
	return c
}

// finish prints the report, and writes and applies the files.
func (o *importRun) finish(c *cobra.Command, r *moving.Result) error {
	if o.apply && !o.ForPeople() {
		return usagef("--apply cannot be used with -o or --jq: print the report alone, then run keygate config apply and keygate keys import")
	}
	if err := o.write(r); err != nil {
		return err
	}
	if o.ForPeople() {
		for _, l := range r.Report {
			if _, err := fmt.Fprintln(o.Out, terminal.Clean(l.String())); err != nil {
				return err
			}
		}
	} else if err := o.PrintData(r.Report); err != nil {
		return err
	}
	o.Say("%d carried, %d carried with a change, %d not carried.", r.Count(moving.Carried), r.Count(moving.Changed), r.Count(moving.Left))
	gateways, keys := filepath.Join(o.dir, "gateways"), filepath.Join(o.dir, "keys.json")
	o.Say("%s", terminal.Clean(fmt.Sprintf("Wrote %s to %s, and %s to %s.", terminal.NumberOf(int64(len(r.Files)), "file", "files"), gateways, terminal.NumberOf(int64(len(r.Keys)), "key", "keys"), keys)))
	if !o.apply {
		o.Say("Nothing was changed on a server. Read the files, then run:")
		if len(r.Files) > 0 {
			o.Say("%s", terminal.Clean("  keygate config apply "+gateways))
		}
		if len(r.Keys) > 0 {
			o.Say("%s", terminal.Clean("  keygate keys import "+keys))
		}
		return nil
	}
	return o.applyFiles(c, r, gateways, keys)
}

// write writes the files. Files of an earlier import that this one does not write are not left among the others.
func (o *importRun) write(r *moving.Result) error {
	keys, err := r.KeysText()
	if err != nil {
		return err
	}
	content := map[string][]byte{"keys.json": keys, "report.txt": r.ReportText()}
	if r.Origins != nil {
		if content[originsFile], err = r.OriginsText(); err != nil {
			return err
		}
	}
	for _, f := range r.Files {
		content[filepath.Join("gateways", f.Name)] = f.Content
	}
	if err := os.MkdirAll(filepath.Join(o.dir, "gateways"), 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(o.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // each file was closed
	entries, err := fs.ReadDir(root.FS(), "gateways")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if content[filepath.Join("gateways", e.Name())] == nil {
			return fault.New(fault.Conflict, "%s is not of this import, and would be applied with it: remove it, or give another directory with --dir", filepath.Join(o.dir, "gateways", e.Name()))
		}
	}
	names := slices.Sorted(maps.Keys(content))
	var changed []string
	for _, name := range names {
		before, err := root.ReadFile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !bytes.Equal(before, content[name]):
			changed = append(changed, filepath.Join(o.dir, name))
		}
	}
	if err := o.mayOverwrite(changed, o.force); err != nil {
		return err
	}
	for _, name := range names {
		if err := writePrivate(root, name, content[name]); err != nil {
			return err
		}
	}
	return nil
}

// writePrivate replaces a file below a directory, as a whole or not at all. Only the user can read it.
func writePrivate(root *os.Root, name string, content []byte) error {
	temporary := name + "-" + rand.Text()
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return nil
}

// applyFiles applies the configuration files, and imports the keys.
func (o *importRun) applyFiles(c *cobra.Command, r *moving.Result, gateways, keys string) error {
	if len(r.Files) > 0 {
		if err := (&configRun{app: o.app}).apply(c, []string{gateways}); err != nil {
			return err
		}
	}
	if len(r.Keys) > 0 {
		return o.importKeys(c.Context(), keys)
	}
	return nil
}
