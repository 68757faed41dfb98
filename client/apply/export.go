package apply

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/plan"
)

// Exported is the file of a gateway, or the file of all plans or all issuers.
type Exported struct {
	File      string `json:"file"`
	GatewayID string `json:"gateway_id,omitempty"`
	Name      string `json:"name,omitempty"`    // of the gateway
	Plans     int    `json:"plans,omitempty"`   // number of plans; 0 in the file of a gateway
	Issuers   int    `json:"issuers,omitempty"` // number of issuers; 0 in the file of a gateway
	Kind      Kind   `json:"-"`                 // what it is of; Gateway if it is of one
	Written   bool   `json:"written"`           // false if the file had this content

	base    string // name of the file in the directory
	content []byte
}

// Export is the files of all gateways, plans and issuers of an account for a directory.
type Export struct {
	Files   []*Exported // of the issuers and of the plans, if there are any, and of gateways by their names
	Changed []string    // files that exist with another content, which Write overwrites
	// Strays are the files of the directory that name a gateway which does not exist, by these names.
	// Applying the directory would create the gateways.
	Strays []Stray
	// Warnings say what of the account is not in the files.
	Warnings []string

	dir  string
	root *os.Root
}

// Stray is a file that names a gateway which does not exist.
type Stray struct{ File, Gateway string }

// Export reads all gateways, plans and issuers, and chooses a file of a directory for each, which it creates if it is missing. A new
// file is named after its gateway, or plans or issuers; a file that names the gateway already, or has plans or issuers, is kept. Export writes no file: Write does.
// The caller must call Close. If several gateways have the same name, the error is an *AmbiguousError, since files
// with that name could not be applied.
func (a *Applier) Export(ctx context.Context, dir string) (*Export, error) {
	files, err := a.export(ctx)
	if err != nil {
		return nil, err
	}
	plans, warnings, err := a.exportPlans(ctx)
	if err != nil {
		return nil, err
	}
	issuers, more, err := a.exportIssuers(ctx)
	if err != nil {
		return nil, err
	}
	warnings = append(warnings, more...)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory: %w", err)
	}
	x := &Export{Files: files, Warnings: warnings, dir: dir, root: root}
	if err := x.chooseNames(plans, issuers); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Close frees the directory.
func (x *Export) Close() error { return x.root.Close() }

// Write writes the files that are new or whose content has changed, each as a whole or not at all. Only the
// user can read them. It returns how many it has written, also if it fails.
func (x *Export) Write() (written int, err error) {
	for _, f := range x.Files {
		if !f.Written {
			continue
		}
		if err := writeInRoot(x.root, f.base, f.content); err != nil {
			return written, fmt.Errorf("write %s: %w; files written before: %d", f.File, err, written)
		}
		written++
	}
	return written, nil
}

// export reads all gateways, by name.
func (a *Applier) export(ctx context.Context) ([]*Exported, error) {
	all, err := a.gateways(ctx)
	if err != nil {
		return nil, err
	}
	byName := gatewaysByName(all)
	files := []*Exported{}
	for i := range all {
		files = append(files, &Exported{Kind: Gateway, GatewayID: all[i].GatewayID, Name: all[i].Name})
	}
	slices.SortFunc(files, func(x, y *Exported) int { return cmp.Compare(x.Name, y.Name) })
	for _, f := range files {
		if same := byName[f.Name]; len(same) > 1 {
			return nil, &AmbiguousError{f.Name, same}
		}
		f.content, err = client.WhileBusy(ctx, a.cfg.Busy, func() ([]byte, error) { return a.cfg.Client.Config(ctx, f.GatewayID) })
		if err != nil {
			return nil, fmt.Errorf("export %s: %w", label(f.Name, f.GatewayID), err)
		}
	}
	return files, nil
}

// chooseNames chooses the file of each gateway and those of the plans and the issuers, which may be nil, and whether it is
// to be written.
func (x *Export) chooseNames(plans, issuers *Exported) error {
	present, lists, err := namesInRoot(x.root)
	if err != nil {
		return fmt.Errorf("read the directory: %w", err)
	}
	used := map[string]int{} // number of gateways by file name, ignoring case
	for _, f := range x.Files {
		if f.base = present[f.Name]; f.base == "" {
			f.base = fileNameOf(f.Name) + ".yaml"
		}
		used[strings.ToLower(f.base)]++
	}
	for _, f := range x.Files {
		if present[f.Name] == "" && used[strings.ToLower(f.base)] > 1 {
			f.base = fileNameOf(f.Name) + "-" + f.GatewayID + ".yaml"
		}
		if err := x.compare(f, "the gateway "+f.Name); err != nil {
			return err
		}
		delete(present, f.Name)
	}
	for _, of := range []struct {
		what string
		file *Exported
	}{{"plans", plans}, {"issuers", issuers}} {
		has := lists[of.what]
		if of.file == nil || of.file.Plans+of.file.Issuers == 0 && has == "" {
			continue
		}
		of.file.base = cmp.Or(has, of.what+".yaml")
		for n := 2; has == "" && used[strings.ToLower(of.file.base)] > 0; n++ { // a gateway has the name
			of.file.base = fmt.Sprintf("%s-%d.yaml", of.what, n)
		}
		used[strings.ToLower(of.file.base)]++
		if err := x.compare(of.file, "the "+of.what); err != nil {
			return err
		}
		x.Files = slices.Insert(x.Files, 0, of.file)
	}
	for _, name := range slices.Sorted(maps.Keys(present)) {
		if used[strings.ToLower(present[name])] == 0 {
			x.Strays = append(x.Strays, Stray{filepath.Join(x.dir, present[name]), name})
		}
	}
	return nil
}

// compare sets whether f is to be written. what names its content.
func (x *Export) compare(f *Exported, what string) error {
	f.File = filepath.Join(x.dir, f.base)
	if strings.EqualFold(filepath.Ext(f.base), ".json") {
		return fault.New(fault.Conflict, "%s has %s in JSON, and an export is YAML: remove it first", f.File, what)
	}
	before, err := readInRoot(x.root, f.base)
	_, missing := x.root.Lstat(f.base)
	switch {
	case errors.Is(missing, fs.ErrNotExist):
		f.Written = true
	case err != nil || !bytes.Equal(before, f.content):
		f.Written = true
		x.Changed = append(x.Changed, f.File)
	}
	return nil
}

// exportPlans returns the file of all plans by name, and what is not in it. It is nil if the key may not read plans, or
// if the server is of a version without plans.
func (a *Applier) exportPlans(ctx context.Context) (*Exported, []string, error) {
	all, err := a.plans(ctx)
	var refused *client.Error
	switch {
	case client.IsNotFound(err):
		return nil, nil, nil
	case errors.As(err, &refused) && refused.Status == http.StatusForbidden:
		return nil, []string{"plans are not exported: " + refused.Message}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("export the plans: %w", err)
	}
	slices.SortFunc(all, func(x, y client.Plan) int { return cmp.Compare(x.Name, y.Name) })
	gateways, err := a.gateways(ctx)
	if err != nil {
		return nil, nil, err
	}
	names := newGatewayNames(gateways, nil).names
	file, warnings := &plan.File{}, []string(nil)
	for i := range all {
		p, left := filePlan(&all[i], names)
		for _, name := range left {
			warnings = append(warnings, fmt.Sprintf("the limit %s of the plan %s is left out: its gateway does not exist any more", name, p.Name))
		}
		file.Plans = append(file.Plans, p)
	}
	return &Exported{Kind: Plan, Plans: len(all), content: file.Encode()}, warnings, nil
}

// filePlan returns a plan in the form of a file, and the names of the limits whose gateway does not exist.
func filePlan(p *client.Plan, gateways map[string]string) (out plan.FilePlan, left []string) {
	out.Plan = plan.Plan{Name: p.Name, TimeZone: p.TimeZone, AnchorDay: int(p.AnchorDay)}
	if p.Title != nil {
		out.Title = *p.Title
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		in, of := plan.LimitInput{Name: l.Name, Concurrency: l.Concurrency, Meter: l.Meter, Per: string(l.Per), Routes: l.Routes}, ""
		if l.WarnAt != nil {
			in.WarnAt = percentagesOf(*l.WarnAt)
		}
		for to, from := range map[*string]*string{
			&in.Sustained: l.Sustained, &in.Burst: l.Burst, &in.Quota: l.Quota, &in.Overage: (*string)(l.Overage), &of: l.GatewayID,
		} {
			if from != nil {
				*to = *from
			}
		}
		limits, err := plan.ParseLimits([]plan.LimitInput{in})
		if name, there := gateways[of]; err != nil || of != "" && !there {
			left = append(left, l.Name)
		} else {
			out.Limits, out.Gateways = append(out.Limits, limits...), append(out.Gateways, name)
		}
	}
	return out, left
}

// namesInRoot returns the configuration files of a directory by the names of their gateways, and the first that has
// plans and the first that has issuers by these words. Files that cannot be read or have none of these are left out.
func namesInRoot(root *os.Root) (names, lists map[string]string, err error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, nil, err
	}
	names, lists = map[string]string{}, map[string]string{}
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
		for what, is := range map[string]bool{"plans": plan.IsFile(content), "issuers": !plan.IsFile(content) && issuer.IsFile(content)} {
			if is && lists[what] == "" {
				lists[what] = entry.Name()
			}
		}
		if n = n.Member("gateway"); n != nil {
			if n = n.Member("name"); n != nil && n.Kind == document.String {
				names[n.Text] = entry.Name()
			}
		}
	}
	return names, lists, nil
}

// longestFileName is how many bytes of a gateway's name its file has.
const longestFileName = 100

// fileNameOf returns the name of the file of a gateway, without its ending: its name, with a dash
// for each run of what is not a letter, digit, dot, dash or underscore. Every system accepts the
// name, and it is not hidden.
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
