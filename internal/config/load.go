package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// Kind is the kind of a value's source.
type Kind uint8

// The kinds, from the highest to the lowest precedence.
const (
	Flag Kind = iota + 1
	Environment
	File
	Default
)

// Origin is the source of a value.
type Origin struct {
	Kind Kind
	Name string // the flag, the environment variable, or the path of the file
	Line int    // in the file
	Key  string // in the file
}

// String returns the origin as error messages show it.
func (o Origin) String() string {
	switch o.Kind {
	case Flag:
		return "--" + o.Name
	case Environment:
		return "the environment variable " + o.Name
	case File:
		return fmt.Sprintf("%s:%d: %s", o.Name, o.Line, o.Key)
	default:
		return "the default"
	}
}

// Error is an invalid value of a setting. Its text names the source and says what to
// write instead.
type Error struct {
	Origin Origin
	Err    error
}

func (e *Error) Error() string { return e.Origin.String() + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// value is the text of a setting and its source.
type value struct {
	text   string
	origin Origin
}

// Loader reads settings from the flags that Register added, the environment and a file.
type Loader struct {
	flags *pflag.FlagSet
}

// Register adds --config and a flag for every setting to fs. Flags of features that this
// version does not have are hidden, and Load returns an error if one is set.
func Register(fs *pflag.FlagSet) *Loader {
	fs.String("config", "", "YAML `file` with any of these settings, named like the flags with _ instead of -")
	for _, s := range settings() {
		switch {
		case s.isBool:
			fs.Bool(s.name, s.fallback == "true", s.usage)
		case s.isList:
			fs.StringArray(s.name, nil, s.usage)
		default:
			fs.String(s.name, s.fallback, s.usage)
		}
		if s.parse == nil {
			fs.Lookup(s.name).Hidden = true
		}
	}
	return &Loader{flags: fs}
}

// Load returns the settings. The value of each comes from the flag, else from the environment
// variable, else from the file; else it is the default. An empty environment variable counts as not
// set. env looks up a variable, as os.LookupEnv does. Errors about a value are of type *Error.
func (l *Loader) Load(env func(string) (string, bool)) (*Config, error) {
	lookup := func(name string) (string, bool) {
		s, ok := env(name)
		return s, ok && s != ""
	}
	inFile := map[string]value{}
	if path, ok := l.file(lookup); ok {
		// A named pipe would keep the start waiting for a writer.
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("the configuration file %s is not a regular file", path)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the configuration file: %w", err)
		}
		if inFile, err = parseFile(path, content); err != nil {
			return nil, err
		}
	}
	c := &Config{origins: map[string]Origin{}}
	for _, s := range settings() {
		v := l.pick(&s, lookup, inFile)
		if s.parse == nil {
			if v.origin.Kind != Default {
				return nil, &Error{v.origin, errors.New("not available in this version of Keygate: remove it")}
			}
			continue
		}
		if err := s.parse(c, v.text); err != nil {
			return nil, &Error{v.origin, err}
		}
		c.origins[s.name] = v.origin
	}
	if c.SecretKeyFile == "" {
		c.SecretKeyFile = filepath.Join(c.DataDir, "secret.key")
	}
	if err := c.readSecrets(lookup); err != nil {
		return nil, err
	}
	if err := c.checkNode(); err != nil {
		return nil, err
	}
	if err := c.checkAddresses(); err != nil {
		return nil, err
	}
	if err := c.completeSharedLimits(); err != nil {
		return nil, err
	}
	if err := c.pairFiles(); err != nil {
		return nil, err
	}
	if err := c.completeACME(); err != nil {
		return nil, err
	}
	if err := c.checkSSO(); err != nil {
		return nil, err
	}
	return c, nil
}

// file returns the path of the configuration file, if one is set.
func (l *Loader) file(env func(string) (string, bool)) (string, bool) {
	if f := l.flags.Lookup("config"); f != nil && f.Changed {
		return f.Value.String(), true
	}
	return env("KEYGATE_CONFIG")
}

// pick returns the value of s from the source with the highest precedence.
func (l *Loader) pick(s *setting, env func(string) (string, bool), inFile map[string]value) value {
	if f := l.flags.Lookup(s.name); f != nil && f.Changed {
		text := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			text = strings.Join(list.GetSlice(), ",")
		}
		return value{text, Origin{Kind: Flag, Name: s.name}}
	}
	if text, ok := env(s.variable()); ok {
		return value{text, Origin{Kind: Environment, Name: s.variable()}}
	}
	if v, ok := inFile[s.fileKey()]; ok {
		return v
	}
	return value{s.fallback, Origin{Kind: Default, Name: s.name}}
}

// checkAddresses returns an error if two listeners have the same address.
func (c *Config) checkAddresses() error {
	seen := map[string]string{}
	for _, l := range []struct{ name, addr string }{
		{"gateway-addr", c.GatewayAddr}, {"admin-addr", c.AdminAddr}, {"ops-addr", c.OpsAddr}, {"acme-http-addr", c.ACME.HTTPAddr},
	} {
		if _, port, err := net.SplitHostPort(l.addr); err == nil && port == "0" {
			continue
		}
		if other, taken := seen[l.addr]; taken {
			return &Error{c.origins[l.name], fmt.Errorf("%s is also the address of %s: set a different one", l.addr, other)}
		}
		seen[l.addr] = l.name
	}
	return nil
}
