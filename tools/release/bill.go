package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"path/filepath"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// bill writes the bill of materials of a binary (SBOM, CycloneDX 1.6): the modules whose code is in it, as the Go
// command recorded them.
func (r *release) bill(t target, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	ref := func(path, version string) string { return "pkg:golang/" + path + "@" + version }
	self := ref(info.Main.Path, r.version)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: self, Type: cyclonedx.ComponentTypeApplication, Name: "keygate", Version: r.version, PackageURL: self,
			Licenses:           &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
			ExternalReferences: &[]cyclonedx.ExternalReference{{Type: cyclonedx.ERTypeVCS, URL: "https://" + info.Main.Path, Comment: r.commit}},
		},
	}
	components := []cyclonedx.Component{{
		BOMRef: ref("std", info.GoVersion), Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: ref("std", info.GoVersion),
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, cyclonedx.Component{
			BOMRef: ref(m.Path, m.Version), Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: ref(m.Path, m.Version),
		})
	}
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: self, Dependencies: &refs}}
	var b bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return err
	}
	return writeFile(filepath.Join(r.out, fmt.Sprintf("keygate_%s_%s_%s.cdx.json", r.number(), t.os, t.arch)), b.Bytes())
}
