package trace

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Settings is the settings of traces, from the environment.
type Settings struct {
	endpoint    *url.URL
	headers     http.Header
	timeout     time.Duration // of one attempt
	gzip        bool
	tls         *tls.Config
	attributes  [][2]string // of the resource, service.name first
	sampler     sampler
	propagate   bool // read and write traceparent
	queue       int  // maximum number of waiting spans
	batch       int  // maximum number of spans in a batch
	delay       time.Duration
	exportLimit time.Duration // for a batch with its retries
}

const (
	defaultEndpoint = "http://localhost:4318"
	defaultService  = "keygate"
)

// FromEnvironment reads the environment variables of OpenTelemetry. It returns nil if the
// environment asks for no traces: neither an endpoint (OTEL_EXPORTER_OTLP_ENDPOINT,
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) nor OTEL_TRACES_EXPORTER=otlp is set. A value that
// is not supported, like a protocol other than http/protobuf, is an error.
func FromEnvironment(lookup func(string) (string, bool)) (*Settings, error) {
	env := environment(lookup)
	exporter, endpoint := env.text("OTEL_TRACES_EXPORTER"), env.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	base := env.text("OTEL_EXPORTER_OTLP_ENDPOINT")
	switch {
	case strings.EqualFold(env.text("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return nil, nil
	case exporter == "" && endpoint == "" && base == "":
		return nil, nil
	case exporter != "" && exporter != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not supported: set otlp or none", exporter)
	}
	s := &Settings{}
	var err error
	try := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	try(func() (err error) {
		s.endpoint, err = env.endpoint(endpoint, base)
		return err
	})
	try(func() error {
		if p := env.of("PROTOCOL"); p != "" && p != "http/protobuf" {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not supported: set http/protobuf", p)
		}
		return nil
	})
	try(func() (err error) {
		s.headers, err = env.headers()
		return err
	})
	try(func() (err error) {
		s.tls, err = env.tls()
		return err
	})
	try(func() error {
		switch c := env.of("COMPRESSION"); c {
		case "gzip":
			s.gzip = true
		case "", "none":
		default:
			return fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION: %q is not supported: set gzip or none", c)
		}
		return nil
	})
	try(func() (err error) {
		s.sampler, err = samplerOf(env.text("OTEL_TRACES_SAMPLER"), env.text("OTEL_TRACES_SAMPLER_ARG"))
		return err
	})
	try(func() (err error) {
		s.attributes, err = env.attributes()
		return err
	})
	for _, n := range []struct {
		name     string
		fallback int
		to       *int
	}{{"OTEL_BSP_MAX_QUEUE_SIZE", 8192, &s.queue}, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, &s.batch}} {
		try(func() (err error) {
			*n.to, err = env.number(n.name, n.fallback)
			return err
		})
	}
	for _, d := range []struct {
		name     string
		fallback time.Duration
		to       *time.Duration
	}{
		{"OTEL_BSP_SCHEDULE_DELAY", 5 * time.Second, &s.delay}, {"OTEL_BSP_EXPORT_TIMEOUT", 30 * time.Second, &s.exportLimit},
		{env.nameOf("TIMEOUT"), 10 * time.Second, &s.timeout},
	} {
		try(func() error {
			ms, err := env.number(d.name, int(d.fallback/time.Millisecond))
			*d.to = time.Duration(ms) * time.Millisecond
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	s.batch = min(s.batch, s.queue)
	names := env.text("OTEL_PROPAGATORS")
	s.propagate = names == "" || strings.Contains(","+strings.ReplaceAll(names, " ", "")+",", ",tracecontext,")
	return s, nil
}

// environment looks up environment variables.
type environment func(string) (string, bool)

// text returns the value of a variable, or "" if it is not set.
func (e environment) text(name string) string {
	v, _ := e(name)
	return strings.TrimSpace(v)
}

// nameOf returns the name of the exporter's variable that applies: the variable for traces if it is
// set, else the variable for all signals.
func (e environment) nameOf(name string) string {
	if own := "OTEL_EXPORTER_OTLP_TRACES_" + name; e.text(own) != "" {
		return own
	}
	return "OTEL_EXPORTER_OTLP_" + name
}

// of returns the value of the exporter's variable that applies.
func (e environment) of(name string) string { return e.text(e.nameOf(name)) }

func (e environment) number(name string, fallback int) (int, error) {
	v := e.text(name)
	if v == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%s: %q must be a number between 1 and %d", name, v, math.MaxInt32)
	}
	return n, nil
}

// endpoint returns the endpoint for traces unchanged, or else the endpoint for all signals with the
// path of traces. Errors do not repeat the URL: it may contain a password.
func (e environment) endpoint(traces, base string) (*url.URL, error) {
	name, text := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", traces
	if traces == "" {
		name, text = "OTEL_EXPORTER_OTLP_ENDPOINT", base
		if base == "" {
			text = defaultEndpoint
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%s: must be a URL that begins with http:// or https://", name)
	}
	if traces == "" {
		u = u.JoinPath("v1", "traces")
	}
	return u, nil
}

var errPairs = errors.New("must be a list of name=value, joined by commas")

// pairs parses a list of percent-encoded names and values.
func pairs(text string) (out [][2]string, err error) {
	for item := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, value, ok := strings.Cut(item, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, errPairs
		}
		if name, err = url.PathUnescape(name); err != nil {
			return nil, errPairs
		}
		if value, err = url.PathUnescape(strings.TrimSpace(value)); err != nil {
			return nil, errPairs
		}
		out = append(out, [2]string{name, value})
	}
	return out, nil
}

func (e environment) headers() (http.Header, error) {
	list, err := pairs(e.of("HEADERS"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.nameOf("HEADERS"), err)
	}
	out := http.Header{}
	for _, p := range list {
		if strings.ContainsAny(p[0], " :\t\r\n\x00") || strings.ContainsAny(p[1], "\r\n\x00") {
			return nil, fmt.Errorf("%s: a name or value has characters that a header cannot have", e.nameOf("HEADERS"))
		}
		out.Set(p[0], p[1])
	}
	return out, nil
}

func (e environment) attributes() ([][2]string, error) {
	list, err := pairs(e.text("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	service := e.text("OTEL_SERVICE_NAME")
	out := [][2]string{{"service.name", service}}
	for _, p := range list {
		if p[0] != "service.name" {
			out = append(out, p)
		} else if service == "" {
			out[0] = p
		}
	}
	out[0][1] = cmp.Or(out[0][1], defaultService)
	return out, nil
}

func (e environment) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := e.of("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.nameOf("CERTIFICATE"), err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s contains no certificate", e.nameOf("CERTIFICATE"), file)
		}
	}
	cert, key := e.of("CLIENT_CERTIFICATE"), e.of("CLIENT_KEY")
	if cert == "" && key == "" {
		return out, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", e.nameOf("CLIENT_CERTIFICATE"), e.nameOf("CLIENT_KEY"), err)
	}
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}
