package cli

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// connectionFlags are the flags for the fields of a gateway that control its
// connections to the upstream.
type connectionFlags struct {
	certificate, key            string // files
	connectTimeout, idleTimeout string
	maxConnectionAge            string
	maxConnections              int64
}

func (o *connectionFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.certificate, "upstream-client-certificate", "", "`file` with the client certificate in PEM, followed by its intermediate certificates")
	f.StringVar(&o.key, "upstream-client-key", "", "`file` with the private key of the client certificate in PEM, or - for standard input")
	f.StringVar(&o.connectTimeout, "upstream-connect-timeout", "", "timeout for connecting to the upstream, as a `duration` such as 2s")
	f.StringVar(&o.idleTimeout, "upstream-idle-timeout", "", "time after which an idle connection to the upstream is closed, as a `duration` such as 30s")
	f.StringVar(&o.maxConnectionAge, "upstream-max-connection-age", "", "age after which a connection to the upstream is not used for new requests, as a `duration` such as 1m")
	f.Int64Var(&o.maxConnections, "upstream-max-connections", 0, "maximum number of `connections` to the upstream; 0 means unlimited")
}

// fill sets the fields of a new gateway whose flags were given.
func (o *connectionFlags) fill(a *app, in *client.CreateGatewayRequest) error {
	in.UpstreamConnectTimeout, in.UpstreamIdleTimeout = given(o.connectTimeout), given(o.idleTimeout)
	in.UpstreamMaxConnectionAge = given(o.maxConnectionAge)
	if o.maxConnections != 0 {
		in.UpstreamMaxConnections = &o.maxConnections
	}
	for _, f := range []struct {
		name string
		to   **string
	}{{o.certificate, &in.UpstreamClientCertificate}, {o.key, &in.UpstreamClientKey}} {
		if f.name == "" {
			continue
		}
		text, err := o.read(a, f.name)
		if err != nil {
			return err
		}
		*f.to = &text
	}
	return nil
}

func (o *connectionFlags) read(a *app, name string) (string, error) {
	content, err := a.ReadInput(name)
	if err != nil {
		return "", fmt.Errorf("read the client certificate and its key: %w", err)
	}
	return string(content), nil
}

// change sets the fields of a patch whose flags were given.
func (o *connectionFlags) change(a *app, c *cobra.Command, p *client.GatewayPatch) error {
	flags, set := c.Flags(), changesOf(c)
	p.UpstreamConnectTimeout = set.text("upstream-connect-timeout", o.connectTimeout)
	p.UpstreamIdleTimeout = set.text("upstream-idle-timeout", o.idleTimeout)
	p.UpstreamMaxConnectionAge = set.text("upstream-max-connection-age", o.maxConnectionAge)
	p.UpstreamMaxConnections = set.number("upstream-max-connections", o.maxConnections)
	for _, f := range []struct {
		flag, name string
		to         *client.Change[string]
	}{
		{"upstream-client-certificate", o.certificate, &p.UpstreamClientCertificate},
		{"upstream-client-key", o.key, &p.UpstreamClientKey},
	} {
		switch {
		case !flags.Changed(f.flag):
		case f.name == "":
			*f.to = client.Clear[string]()
		default:
			text, err := o.read(a, f.name)
			if err != nil {
				return err
			}
			*f.to = client.Set(text)
		}
	}
	return nil
}

// connectionFields returns those connection fields of a gateway that are set.
func connectionFields(g *client.Gateway) (fields []terminal.Field) {
	for _, f := range []terminal.Field{
		{"UPSTREAM CLIENT", subject(g.UpstreamClientCertificate)},
		{"CONNECT TIMEOUT", limitPart("", g.UpstreamConnectTimeout)},
		{"IDLE TIMEOUT", limitPart("", g.UpstreamIdleTimeout)},
		{"MAX CONNECTION AGE", limitPart("", g.UpstreamMaxConnectionAge)},
		{"MAX CONNECTIONS", number(g.UpstreamMaxConnections)},
	} {
		if f[1] != "" {
			fields = append(fields, f)
		}
	}
	return fields
}

// subject returns the subject of a certificate and the end of its validity.
func subject(certificate *string) string {
	if certificate == nil {
		return ""
	}
	block, _ := pem.Decode([]byte(*certificate))
	if block == nil {
		return "a certificate"
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "a certificate"
	}
	return c.Subject.String() + " until " + terminal.Moment(&c.NotAfter)
}
