package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
)

type configExport struct {
	gatewayCommand
	all   bool
	force bool
}

func newConfigExport(a *app) *cobra.Command {
	o := &configExport{gatewayCommand: gatewayCommand{app: a, optional: true}}
	c := o.flag(&cobra.Command{
		Use: "export --gateway ID | --all DIR", Short: "Export gateways with their routes as configuration files",
		Long: `Print a gateway with its routes as a configuration file, or write a file for every gateway
into a directory. Secrets are exported as ***; applied to the gateway that has the secret, it is
kept. Applying an export changes nothing.

A file is named after its gateway. If a file of the directory names the gateway already, that one is
overwritten, whatever its name, but only after a question on a terminal or with --force.`,
		Example: "  keygate config export orders > orders.yaml\n  keygate config export --all gateways/",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case !o.all && o.force:
				return usagef("--force is only used with --all")
			case !o.all:
				return o.one(c.Context(), args)
			case o.id != "":
				return usagef("give --gateway or --all, not both")
			case len(args) == 0:
				return usagef("no directory given: give the directory for the files, as in keygate config export --all gateways")
			}
			return o.exportAll(c.Context(), args[0])
		},
	})
	c.Flags().BoolVar(&o.all, "all", false, "write a file for every gateway into the directory that is the argument")
	c.Flags().BoolVar(&o.force, "force", false, "with --all: overwrite files")
	return c
}

// one prints one gateway.
func (o *configExport) one(ctx context.Context, args []string) error {
	id, api, err := o.gateway(args)
	if err != nil {
		return err
	}
	content, err := api.Config(ctx, id)
	if err != nil {
		return err
	}
	_, err = o.Out.Write(content)
	return err
}

// exported is the file of a gateway. It is what config export --all prints for programs.
type exported struct {
	File      string `json:"file"`
	GatewayID string `json:"gateway_id"`
	Name      string `json:"name"`
	Written   bool   `json:"written"` // false if the file had this content

	base    string // name of the file in the directory
	content []byte
}

// exportAll writes a file for every gateway into a directory. Nothing is written before every
// gateway was read and overwriting was confirmed.
func (o *configExport) exportAll(ctx context.Context, dir string) error {
	api, err := o.connect()
	if err != nil {
		return err
	}
	files, err := o.readGateways(ctx, api)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the directory: %w", err)
	}
	defer func() { _ = root.Close() }() // each file was closed
	changed, err := o.place(root, dir, files)
	if err != nil {
		return err
	}
	if err := o.mayOverwrite(changed); err != nil {
		return err
	}
	written := 0
	for _, f := range files {
		if !f.Written {
			continue
		}
		if err := writeInRoot(root, f.base, f.content); err != nil {
			return fmt.Errorf("write %s: %w; files written before: %d", f.File, err, written)
		}
		written++
	}
	if !o.ForPeople() {
		return o.PrintData(files)
	}
	o.Say("Exported %s to %s: %d written, %d unchanged.", terminal.NumberOf(int64(len(files)), "gateway", "gateways"), terminal.Clean(dir), written, len(files)-written)
	return nil
}

// readGateways reads all gateways, by name. It fails if two have the same one, since files with
// that name could not be applied.
func (o *configExport) readGateways(ctx context.Context, api *client.Client) ([]*exported, error) {
	files := []*exported{}
	byName := map[string][]match{}
	all, err := o.allGateways(api)
	if err != nil {
		return nil, err
	}
	for i := range all {
		files = append(files, &exported{GatewayID: all[i].GatewayID, Name: all[i].Name})
		byName[all[i].Name] = append(byName[all[i].Name], gatewayMatch(&all[i]))
	}
	slices.SortFunc(files, func(x, y *exported) int { return cmp.Compare(x.Name, y.Name) })
	for _, f := range files {
		if _, err := only("gateway", f.Name, byName[f.Name], ""); err != nil {
			return nil, &ambiguousError{fmt.Sprintf("%s\nFiles that name it could not be applied. Rename the others first: keygate gateways update ID --name NAME", err)}
		}
		content, err := inTurn(ctx, o.app, func() (*[]byte, error) {
			content, err := api.Config(ctx, f.GatewayID)
			return &content, err
		})
		if err != nil {
			return nil, fmt.Errorf("export gateway %s: %w", withID(f.Name, f.GatewayID), err)
		}
		f.content = *content
	}
	return files, nil
}

// place chooses the file of each gateway and whether it is to be written. It returns the files that
// exist with another content.
func (o *configExport) place(root *os.Root, dir string, files []*exported) (changed []string, err error) {
	present, err := namesInRoot(root)
	if err != nil {
		return nil, fmt.Errorf("read the directory: %w", err)
	}
	used := map[string]int{} // how many gateways want a file name, which may differ in case alone
	for _, f := range files {
		if f.base = present[f.Name]; f.base == "" {
			f.base = fileNameOf(f.Name) + ".yaml"
		}
		used[strings.ToLower(f.base)]++
	}
	for _, f := range files {
		if present[f.Name] == "" && used[strings.ToLower(f.base)] > 1 {
			f.base = fileNameOf(f.Name) + "-" + f.GatewayID + ".yaml"
		}
		f.File = filepath.Join(dir, f.base)
		if strings.EqualFold(filepath.Ext(f.base), ".json") {
			return nil, fault.New(fault.Conflict, "%s has the gateway %s in JSON, and an export is YAML: remove it first", f.File, f.Name)
		}
		before, err := readInRoot(root, f.base)
		_, missing := root.Lstat(f.base)
		switch {
		case errors.Is(missing, fs.ErrNotExist):
			f.Written = true
		case err != nil || !bytes.Equal(before, f.content):
			f.Written = true
			changed = append(changed, f.File)
		}
		delete(present, f.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(present)) {
		if used[strings.ToLower(present[name])] == 0 {
			o.Say("%s", terminal.Clean(fmt.Sprintf("warning: %s names the gateway %s, which does not exist: applying the directory would create it", filepath.Join(dir, present[name]), name)))
		}
	}
	return changed, nil
}

// mayOverwrite asks whether files may be overwritten.
func (o *configExport) mayOverwrite(files []string) error {
	if len(files) == 0 || o.force {
		return nil
	}
	for _, f := range files[:min(len(files), maxCandidates)] {
		o.Say("%s", terminal.Clean(f+" exists and has other content."))
	}
	if len(files) > maxCandidates {
		o.Say("So do %d more files.", len(files)-maxCandidates)
	}
	if !o.Asks() {
		return fault.New(fault.Conflict, "nothing was written: give --force to overwrite files")
	}
	return o.Answered("Overwrite? What differs in them is lost, such as ${env:NAME} and comments. [y/N] ", terminal.IsYes)
}

// namesInRoot returns the configuration files of a directory by the names of their gateways. Files
// that cannot be read or name none are left out.
func namesInRoot(root *os.Root) (map[string]string, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, entry := range entries {
		if entry.IsDir() || !isConfigName(entry.Name()) {
			continue
		}
		content, err := readInRoot(root, entry.Name())
		if err != nil {
			continue
		}
		n, err := document.Parse(content)
		if err != nil {
			continue
		}
		if n = n.Member("gateway"); n != nil {
			if n = n.Member("name"); n != nil && n.Kind == document.String {
				names[n.Text] = entry.Name()
			}
		}
	}
	return names, nil
}

// longestFileName is how many bytes of a gateway's name its file has.
const longestFileName = 100

// fileNameOf returns the name of the file of a gateway, without its ending: its name, with a dash
// for each run of what is not a letter, digit, dot, dash or underscore. It is one that all systems
// take, and not hidden.
func fileNameOf(gateway string) string {
	var b strings.Builder
	for _, r := range gateway {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_':
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == longestFileName {
			break
		}
	}
	name := strings.Trim(b.String(), ".-")
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	switch reserved := strings.TrimRight(stem, "0123456789"); { // on Windows
	case name == "":
		return "gateway"
	case stem == "con" || stem == "prn" || stem == "aux" || stem == "nul" || len(stem) == 4 && (reserved == "com" || reserved == "lpt"):
		return "gateway-" + name
	}
	return name
}

// writeInRoot replaces a file below a directory, as a whole or not at all. Only the user can read
// it.
func writeInRoot(root *os.Root, name string, content []byte) error {
	temporary := ".keygate-" + rand.Text()
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	if err := root.Rename(temporary, name); err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return nil
}
