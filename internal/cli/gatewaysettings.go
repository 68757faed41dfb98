package cli

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/gateway"
)

// The flags of a gateway's settings, and what commands show of them, are loops over gateway.Settings. How
// they look follows from the kind of the setting.

// headersFileFlag is what the flag for headers beside its own has in place of its end: upstream-headers-file beside
// upstream-header.
const (
	headersFileFlag  = "s-file"
	headersFileUsage = "`file` with such headers, one NAME=VALUE per line, or - for standard input; keeps secrets out of the process list"
)

// settingFlags adds the flags of settings.
func settingFlags(f *pflag.FlagSet, rows []gateway.Setting) {
	for _, s := range rows {
		settingFlag(f, s.Kind, s.Flag, s.Default() == true)
		for _, p := range s.Parts {
			if p.Flag.Name != "" {
				settingFlag(f, p.Kind, p.Flag, false)
			}
		}
	}
}

func settingFlag(f *pflag.FlagSet, kind gateway.Kind, flag gateway.Flag, isTrue bool) {
	switch kind {
	case gateway.KindBool, gateway.KindMaintenance:
		f.Bool(flag.Name, isTrue, flag.Usage)
	case gateway.KindCount:
		f.Int64(flag.Name, 0, flag.Usage)
	case gateway.KindList:
		if flag.Whole {
			f.StringArray(flag.Name, nil, flag.Usage)
		} else {
			f.StringSlice(flag.Name, nil, flag.Usage)
		}
	case gateway.KindPairs:
		f.StringArray(flag.Name, nil, flag.Usage)
	case gateway.KindHeaders:
		f.StringArray(flag.Name, nil, flag.Usage)
		f.String(flag.Name+headersFileFlag, "", headersFileUsage)
	case gateway.KindTargets, gateway.KindSplit:
		f.StringArray(flag.Name, nil, flag.Usage)
	case gateway.KindEjection, gateway.KindRetries, gateway.KindHealth:
		f.String(flag.Name, "", flag.Usage)
	case gateway.KindLimit, gateway.KindCORS, gateway.KindSwitches, gateway.KindHeaderRules: // each part has a flag of its own
	case gateway.KindText, gateway.KindDuration, gateway.KindCertificate, gateway.KindKey:
		f.String(flag.Name, "", flag.Usage)
	}
}

// settingsOf returns the settings of rows whose flags were given, by their names: nil for a setting that is cleared.
func (a *app) settingsOf(f *pflag.FlagSet, rows []gateway.Setting) (map[string]any, error) {
	given := map[string]any{}
	for _, s := range rows {
		flags := []string{s.Flag.Name}
		if s.Kind == gateway.KindHeaders {
			flags = append(flags, s.Flag.Name+headersFileFlag)
		}
		for _, p := range s.Parts {
			if flags = append(flags, p.Flag.Name); p.Kind == gateway.KindHeaders {
				flags = append(flags, p.Flag.Name+headersFileFlag)
			}
		}
		if !slices.ContainsFunc(flags, f.Changed) {
			continue
		}
		value, err := a.settingOf(f, &s)
		if err != nil {
			return nil, err
		}
		given[s.Name] = value
	}
	return given, nil
}

// settingOf returns the value that the flags of a setting give; nil if it is empty, or 0 for a number.
func (a *app) settingOf(f *pflag.FlagSet, s *gateway.Setting) (any, error) {
	switch s.Kind {
	case gateway.KindBool:
		return f.GetBool(s.Flag.Name)
	case gateway.KindCount:
		n, err := f.GetInt64(s.Flag.Name)
		return orNil(n, n == 0), err
	case gateway.KindList:
		list := listFlag(f, s.Flag)
		return orNil(list, len(list) == 0), nil
	case gateway.KindHeaders:
		headers, err := a.headersOf(f, s.Flag.Name)
		return orNil(headers, headers == nil), err
	case gateway.KindLimit:
		return limitOf(f, s.Parts)
	case gateway.KindCORS:
		return corsOf(f, s.Parts)
	case gateway.KindSwitches:
		return switchesOf(f, s.Parts)
	case gateway.KindMaintenance:
		return maintenanceOf(f, s)
	case gateway.KindHeaderRules:
		rules, err := headerRulesOf(f, s.Parts[0].Flag.Name, s.Parts[1].Flag.Name)
		if rules == nil {
			return nil, err
		}
		return rules, err
	case gateway.KindTargets:
		return targetsOf(listFlag(f, s.Flag))
	case gateway.KindSplit:
		list, err := splitOf(listFlag(f, s.Flag))
		return orNil(list, len(list) == 0), err
	case gateway.KindEjection:
		return ejectionOf(f.Lookup(s.Flag.Name).Value.String())
	case gateway.KindRetries:
		return retriesOf(f.Lookup(s.Flag.Name).Value.String())
	case gateway.KindHealth:
		return a.healthOf(f)
	case gateway.KindCertificate, gateway.KindKey:
		return a.fileOf(f, s.Flag)
	case gateway.KindText, gateway.KindDuration, gateway.KindPairs:
	}
	text, err := f.GetString(s.Flag.Name)
	return orNil(text, text == "" && !s.NotNull), err
}

// orNil returns v, or nil if it is empty.
func orNil(v any, isEmpty bool) any {
	if isEmpty {
		return nil
	}
	return v
}

// listFlag returns the values of a flag that may be repeated.
func listFlag(f *pflag.FlagSet, flag gateway.Flag) []string {
	list, isList := f.Lookup(flag.Name).Value.(pflag.SliceValue)
	if !isList {
		return nil
	}
	return list.GetSlice()
}

// fileOf returns the content of the file that a flag names; nil if its value is empty.
func (a *app) fileOf(f *pflag.FlagSet, flag gateway.Flag) (any, error) {
	name, err := f.GetString(flag.Name)
	switch {
	case err != nil || name == "":
		return nil, err
	case flag.File == "":
		return readText(name)
	}
	content, err := a.ReadInput(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag.File, err)
	}
	return string(content), nil
}

// headersOf returns the headers given by flag and file; nil if there are none.
func (a *app) headersOf(f *pflag.FlagSet, flag string) (map[string]string, error) {
	lines, err := f.GetStringArray(flag)
	if err != nil {
		return nil, err
	}
	if file := f.Lookup(flag + headersFileFlag).Value.String(); file != "" {
		content, err := a.ReadInput(file)
		if err != nil {
			return nil, fmt.Errorf("read the upstream headers: %w", err)
		}
		for line := range strings.Lines(string(content)) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if strings.Join(lines, "") == "" {
		return nil, nil
	}
	return pairs(flag, lines)
}

// limitOf returns the limit that the flags of its parts, sustained and burst, give; nil for none.
func limitOf(f *pflag.FlagSet, parts []gateway.Part) (any, error) {
	sustained, burst := parts[0].Flag.Name, parts[1].Flag.Name
	limit := client.GlobalLimitInput{Sustained: f.Lookup(sustained).Value.String(), Burst: given(f.Lookup(burst).Value.String())}
	switch {
	case limit.Sustained != "":
		return limit, nil
	case limit.Burst != nil:
		return nil, usagef("--%s needs --%s", burst, sustained)
	default:
		return nil, nil
	}
}

// corsOf returns the object that the flags of its parts give; nil without origins, which are the first
// part.
func corsOf(f *pflag.FlagSet, parts []gateway.Part) (any, error) {
	cors := map[string]any{}
	for i, p := range parts {
		if p.Kind == gateway.KindCount {
			n, err := f.GetInt64(p.Flag.Name)
			if err != nil {
				return nil, err
			}
			if n != 0 {
				cors[p.Name] = n
			}
		} else if list := listFlag(f, p.Flag); len(list) > 0 && (i > 0 || strings.Join(list, "") != "") {
			cors[p.Name] = list
		}
	}
	switch {
	case cors["origins"] != nil:
		return cors, nil
	case len(cors) > 0:
		return nil, usagef("--cors-method, --cors-header and --cors-max-age need --cors-origin")
	default:
		return nil, nil
	}
}

// switchesOf returns the switches whose flags are given.
func switchesOf(f *pflag.FlagSet, parts []gateway.Part) (any, error) {
	given := map[string]bool{}
	for _, p := range parts {
		if !f.Changed(p.Flag.Name) {
			continue
		}
		var err error
		if given[p.Name], err = f.GetBool(p.Flag.Name); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// putSettings sets the fields of a request that settings name.
func putSettings(settings map[string]any, request any) error {
	content, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, request)
}

// settingFields returns the settings of rows of a record that commands show: settings that are set, and settings
// that always have a value.
func settingFields(record any, rows []gateway.Setting) ([]terminal.Field, error) {
	content, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(content, &values); err != nil {
		return nil, err
	}
	shown := slices.DeleteFunc(rows, func(s gateway.Setting) bool {
		value := values[s.Name]
		return s.Flag.Column == "" || value == nil || s.Kind == gateway.KindCORS && bytes.Equal(value, []byte("null"))
	})
	slices.SortStableFunc(shown, func(a, b gateway.Setting) int { return a.Flag.Rank - b.Flag.Rank })
	fields := make([]terminal.Field, len(shown))
	for i, s := range shown {
		fields[i][0] = s.Flag.Column
		if fields[i][1], err = settingValue(s.Kind, values[s.Name]); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// settingValue returns a setting of a record on one line.
func settingValue(kind gateway.Kind, content json.RawMessage) (string, error) {
	switch kind {
	case gateway.KindBool:
		return showAs(content, yesNo)
	case gateway.KindCount:
		return showAs(content, number)
	case gateway.KindList:
		return showAs(content, func(list []string) string { return strings.Join(list, ", ") })
	case gateway.KindHeaders:
		return showAs(content, func(headers map[string]string) string { return strings.Join(sortedKeys(headers), ", ") })
	case gateway.KindCertificate:
		return showAs(content, subject)
	case gateway.KindLimit:
		return showAs(content, globalLimit)
	case gateway.KindCORS:
		return showAs(content, func(c client.Cors) string { return strings.Join(c.Origins, ", ") })
	case gateway.KindSwitches:
		return showAs(content, switchedOn)
	case gateway.KindMaintenance:
		return showAs(content, maintenanceText)
	case gateway.KindHeaderRules:
		return showAs(content, headerRulesText)
	case gateway.KindTargets:
		return showAs(content, targetsText)
	case gateway.KindSplit:
		return showAs(content, splitText)
	case gateway.KindEjection:
		return showAs(content, ejectionText)
	case gateway.KindRetries:
		return showAs(content, retriesText)
	case gateway.KindHealth:
		return showAs(content, healthText)
	case gateway.KindText, gateway.KindDuration, gateway.KindKey, gateway.KindPairs:
	}
	return showAs(content, strings.Clone)
}

// switchedOn returns the names of the switches that are on.
func switchedOn(switches map[string]bool) string {
	var on []string
	for _, name := range slices.Sorted(maps.Keys(switches)) {
		if switches[name] {
			on = append(on, name)
		}
	}
	return cmp.Or(strings.Join(on, ", "), "no")
}

// showAs returns the text that show prints for a value in JSON.
func showAs[T any](content json.RawMessage, show func(T) string) (string, error) {
	var v T
	if err := json.Unmarshal(content, &v); err != nil {
		return "", err
	}
	return show(v), nil
}

// subject returns the subject of a certificate and the end of its validity, and "" without one.
func subject(certificate string) string {
	if certificate == "" {
		return ""
	}
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		return "a certificate"
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "a certificate"
	}
	return c.Subject.String() + " until " + terminal.Moment(&c.NotAfter)
}
