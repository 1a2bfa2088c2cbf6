package daemon

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/nodes"
	"berth/runtimes"
	"berth/schema"
	"berth/webhooks/forge"
	"berth/webhooks/secret"
)

//go:embed config.cue
var configCUE string

// Config is berth.yaml. config.cue defines and explains its fields.
type Config struct {
	Estate        string                   `json:"estate"`
	Repository    repositoryConfig         `json:"repository"`
	Tenants       map[string]*tenantConfig `json:"tenants"`
	Authority     authorityConfig          `json:"authority"`
	Forge         forge.Section            `json:"forge"` // nil: none
	Listen        string                   `json:"listen"`
	TLS           *tlsConfig               `json:"tls"`
	SSH           *sshConfig               `json:"ssh"`
	MemoryRuntime *memoryConfig            `json:"memory_runtime"`
	API           *apiConfig               `json:"api"`
	Features      featureConfig            `json:"features"`
	Artifacts     artifactsConfig          `json:"artifacts"`
	Rules         *rulesConfig             `json:"rules"`
	loopConfig

	kind    *forge.Kind   // of Forge
	limiter forge.Limiter // shared by the estates of one forge identity; nil: no forge
}

type repositoryConfig struct {
	URL         string      `json:"url"`
	Branch      string      `json:"branch"`
	Username    string      `json:"username"`
	Token       *secret.Ref `json:"token"`
	SSHKey      string      `json:"ssh_key"`
	KnownHosts  string      `json:"known_hosts"`
	AllowHTTP   bool        `json:"allow_http"`
	StatusURL   string      `json:"status_url"`
	StatusToken *secret.Ref `json:"status_token"`
	Accept      string      `json:"accept"`
	Directory   string      `json:"directory"`
	SigningKey  string      `json:"signing_key"`
}

type authorityConfig struct {
	Administrators    []string `json:"administrators"`
	AdministratorKeys []string `json:"administrator_keys"`
	TrustMain         bool     `json:"trust_main"`
	TrustLocalCommits bool     `json:"trust_local_commits"`
}

type sshConfig struct {
	User           string   `json:"user"`
	Key            string   `json:"key"`
	KnownHosts     string   `json:"known_hosts"`
	CommandTimeout duration `json:"command_timeout"`
	ReadyTimeout   duration `json:"ready_timeout"`
}

// limits returns the time limits of work on hosts, with their defaults.
func (s *sshConfig) limits() runtimes.Limits {
	return runtimes.Limits{
		Command: cmp.Or(time.Duration(s.CommandTimeout), 5*time.Second), Ready: cmp.Or(time.Duration(s.ReadyTimeout), 30*time.Second),
	}
}

type memoryConfig struct {
	Directory string   `json:"directory"`
	Backends  []string `json:"backends"`
}

// loopConfig has the intervals and bounds of the reconcile loop.
type loopConfig struct {
	Interval    duration `json:"interval"`
	Poll        duration `json:"poll"`
	FlushWindow duration `json:"flush_window"`
	Retention   duration `json:"retention"`
	Workers     int      `json:"workers"`
	MaxAttempts int      `json:"max_attempts"`
	Usage       duration `json:"usage_interval"`

	Nodes nodesConfig `json:"nodes"`
}

// nodesConfig has the times of the observation of nodes.
type nodesConfig struct {
	Heartbeat duration `json:"heartbeat"`
	NotReady  duration `json:"not_ready_after"`
	Lost      duration `json:"lost_after"`
}

// limits returns the limits of the states of nodes.
func (n nodesConfig) limits() nodes.Limits {
	return nodes.Limits{NotReady: time.Duration(n.NotReady), Lost: time.Duration(n.Lost)}
}

// defaults returns a configuration with the defaults that config.cue documents.
func defaults() Config {
	return Config{Estate: "estate", Repository: repositoryConfig{Branch: "main"},
		Artifacts: artifactsConfig{Interval: duration(time.Hour)}, loopConfig: loopConfig{
			Interval: duration(5 * time.Second), Poll: duration(time.Minute), FlushWindow: duration(time.Second),
			Retention: duration(90 * 24 * time.Hour), Workers: 4, MaxAttempts: 10, Usage: duration(time.Hour),
			Nodes: nodesConfig{duration(15 * time.Second), duration(45 * time.Second), duration(10 * time.Minute)},
		}}
}

// duration is a time.Duration written as "5s" or "90d".
type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		*d = duration(time.Duration(n) * 24 * time.Hour)
		return err
	}
	v, err := time.ParseDuration(text)
	*d = duration(v)
	return err
}

// Reference returns the reference of berth.yaml as Markdown, made from config.cue.
func Reference() ([]byte, error) {
	return builtIn().reference("Configuration of the daemon", "All fields of `berth.yaml`. "+
		"[configure.md](../configure.md) explains how to use them. "+
		"This page is generated: `berth docs configuration` prints it.\n\n"+
		"A secret is never written into the file: `{file: PATH}` or `{env: NAME}` names it. "+
		"Durations have a unit: `500ms`, `5s`, `10m`, `1h`; `90d` for days.")
}

// ReadConfig reads and checks berth.yaml. The error lists all mistakes, each with
// file, line and column.
func ReadConfig(path string) (*Config, error) { return builtIn().readConfig(path) }

// readConfig is ReadConfig with the forges of a registry.
func (r *registry) readConfig(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration: %s: no such file; name the configuration with -c, or make an estate that has one: berth "+
			"init DIR", path)
	}
	if info, no := os.Stat(path); no == nil && info.IsDir() {
		return nil, fmt.Errorf("configuration: %s is a directory: name the file in it, such as %s", path, filepath.Join(path, "berth.yaml"))
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	file, forgeKind, err := r.readFile(path, data)
	if err != nil {
		return nil, err
	}
	if kind, isDocument := file.Value["kind"]; isDocument && file.Value["apiVersion"] != nil {
		line, column := file.Place("kind")
		return nil, mistakes([]schema.Diagnostic{{File: path, Line: line, Column: column,
			Message: fmt.Sprintf("this is a document of an estate (kind %v), and -c names the configuration of the daemon, such as "+
				"berth.yaml", kind)}})
	}
	found := r.redactedFindings(file, forgeKind)
	c, err := decodeConfig(file.Value, found, forgeKind)
	if err != nil {
		return nil, fmt.Errorf("configuration: %s: %w", path, err)
	}
	for _, m := range c.conflicts(r.kinds) {
		if _, isThere := file.Value[section(m.at)]; !isThere {
			continue // the section is missing or misspelt, which is a finding already
		}
		if wrong := slices.ContainsFunc(found, func(d schema.Diagnostic) bool { return section(d.Path) == section(m.field) }); wrong ||
			file.Value == nil {
			continue // a mistake in the same section may be the reason
		}
		line, column := file.Place(m.at)
		found = append(found, schema.Diagnostic{File: path, Line: line, Column: column, Message: m.field + ": " + m.message})
	}
	if len(found) > 0 {
		return nil, mistakes(found)
	}
	return c, c.resolve(path)
}

// mistakes returns one error for all findings, in the order of the file.
func mistakes(found []schema.Diagnostic) error {
	slices.SortStableFunc(found, func(a, b schema.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var lines []string
	for _, d := range found {
		lines = append(lines, fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Column, d.Message))
	}
	if len(lines) == 1 {
		return fmt.Errorf("configuration: %s", lines[0])
	}
	return fmt.Errorf("configuration: %d mistakes:\n%s", len(lines), strings.Join(lines, "\n"))
}

// locator returns a function that puts the file, and the line and column of the field that a text begins
// with, before a finding about a configuration that was read from there.
func (r *registry) locator(path string) (func(severity, text string) string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	file, _, err := r.readFile(path, data)
	if err != nil {
		return nil, err
	}
	return func(severity, text string) string {
		where := path
		if field, _, ok := strings.Cut(text, ": "); ok && !strings.Contains(field, " ") {
			line, column := file.Place(field)
			where = fmt.Sprintf("%s:%d:%d", path, line, column)
		}
		return where + ": " + severity + text
	}, nil
}

// section returns the first step of a field's path.
func section(path string) string {
	if end := strings.IndexAny(path, ".["); end >= 0 {
		return path[:end]
	}
	return path
}

// decodeConfig decodes the sections of a file without findings, over the defaults.
func decodeConfig(value map[string]any, found []schema.Diagnostic, kind *forge.Kind) (_ *Config, err error) {
	c := defaults()
	valid := maps.Clone(value)
	for _, d := range found {
		delete(valid, section(d.Path))
	}
	if section, ok := valid["forge"]; ok {
		if c.Forge, err = decodeForge(kind, section); err != nil {
			return nil, err
		}
		c.kind = kind
		delete(valid, "forge")
	}
	data, err := json.Marshal(valid)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// resolve fills in what depends on other fields and on the file's directory.
func (c *Config) resolve(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	from := func(p string) string {
		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(absolute), p)
		}
		return filepath.Clean(p)
	}
	c.Repository.Directory = from(c.Repository.Directory)
	if c.MemoryRuntime != nil {
		c.MemoryRuntime.Directory = from(c.MemoryRuntime.Directory)
	}
	if r := &c.Repository; !strings.Contains(r.URL, "://") {
		r.URL = (&url.URL{Scheme: "file", Path: from(r.URL)}).String()
	}
	if c.Forge != nil {
		c.Forge.Complete()
	}
	if c.SSH != nil {
		c.SSH.User = cmp.Or(c.SSH.User, "berth")
		l := c.SSH.limits()
		c.SSH.CommandTimeout, c.SSH.ReadyTimeout = duration(l.Command), duration(l.Ready)
	}
	return nil
}

// isLocal reports whether the repository is a directory of this machine. It works on
// a configuration that is not resolved yet, too.
func (c *Config) isLocal() bool {
	u := c.Repository.URL
	return u != "" && (strings.HasPrefix(u, "file://") || !strings.Contains(u, "://"))
}

// LocalRepository returns the directory of the repository, if it is on this machine.
func (c *Config) LocalRepository() (dir string, ok bool) {
	u, err := url.Parse(c.Repository.URL)
	if err != nil || u.Scheme != "file" {
		return "", false
	}
	return u.Path, true
}

// address is where HTTP is served.
func (c *Config) address() string { return cmp.Or(c.Listen, "127.0.0.1:8080") }

// retention is how long deleted instances can be read; negative without the read API.
func (c *Config) retention() time.Duration {
	if c.API == nil {
		return -1
	}
	return time.Duration(c.Retention)
}
