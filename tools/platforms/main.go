// Command platforms fails if a package of the module, or its tests, would not compile on another operating
// system. It only checks types, from source and without function bodies of other modules, which takes a
// fraction of a compiler's time.
//
//	platforms darwin freebsd windows
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: platforms GOOS...")
		os.Exit(2)
	}
	for _, system := range os.Args[1:] {
		fmt.Println("types for " + system)
		if err := check(system); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// unit is a package, or a package compiled with its tests, as go list describes it.
type unit struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string // path in the source: path of the unit
	Imports    []string          // paths of units
	Module     *struct{ Main bool }
	Error      *struct{ Err string }

	checked chan struct{}
	types   *types.Package
	errs    []error
}

// own reports whether the unit belongs to this module.
func (u *unit) own() bool { return u.Module != nil && u.Module.Main }

// check reports what would not compile on system.
func check(system string) error {
	units, err := list(system)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	byPath := map[string]*unit{}
	running := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for _, u := range units { // dependencies first
		byPath[u.ImportPath] = u
		u.checked = make(chan struct{})
		var needs []*unit
		for _, path := range u.Imports {
			if need := byPath[path]; need != nil {
				needs = append(needs, need)
			}
		}
		imports := imported{unit: u, units: needs}
		all.Go(func() {
			defer close(u.checked)
			for _, need := range needs {
				<-need.checked
			}
			running <- struct{}{}
			defer func() { <-running }()
			u.check(files, imports)
		})
	}
	all.Wait()
	var errs []error
	for _, u := range units {
		if u.own() {
			errs = append(errs, u.errs...)
		}
	}
	return errors.Join(errs...)
}

// list returns the packages of the module, their tests and everything that these need, dependencies first.
func list(system string) ([]*unit, error) {
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Imports,Module,Error", "./...")
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages for %s: %w", system, err)
	}
	var units []*unit
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		u := &unit{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return units, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list printed: %w", err)
		}
		if u.Error != nil {
			return nil, fmt.Errorf("%s: %s", u.ImportPath, u.Error.Err)
		}
		if !strings.HasSuffix(u.ImportPath, ".test") { // the program of a test, which go test writes
			units = append(units, u)
		}
	}
}

// check parses the unit and checks its types, which it keeps with the errors.
func (u *unit) check(files *token.FileSet, imports imported) {
	mode := parser.SkipObjectResolution
	var syntax []*ast.File
	for _, name := range u.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(u.Dir, name)
		}
		file, err := parser.ParseFile(files, name, nil, mode)
		if err != nil {
			u.errs = append(u.errs, err)
			return
		}
		syntax = append(syntax, file)
	}
	config := types.Config{
		Importer:         imports,
		IgnoreFuncBodies: !u.own(),
		Sizes:            types.SizesFor("gc", "amd64"),
		Error:            func(err error) { u.errs = append(u.errs, err) },
	}
	path, _, _ := strings.Cut(u.ImportPath, " ") // without the name of the test
	u.types, _ = config.Check(path, files, syntax, nil)
}

// imported finds the packages that a unit imports.
type imported struct {
	unit  *unit
	units []*unit
}

// Import returns the package that path means in the source of the unit.
func (i imported) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if mapped := i.unit.ImportMap[path]; mapped != "" {
		path = mapped
	}
	for _, u := range i.units {
		if u.ImportPath == path && u.types != nil {
			return u.types, nil
		}
	}
	return nil, fmt.Errorf("package %s was not found", path)
}
