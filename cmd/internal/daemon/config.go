package daemon

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/load"
	"berth/schema/signature"
	"berth/webhooks/github"
)

//go:embed config.cue
var configCUE string

// config is berth.yaml, as config.cue says it.
type config struct {
	Estate     string `json:"estate"`
	Repository struct {
		URL         string  `json:"url"`
		Branch      string  `json:"branch"`
		Username    string  `json:"username"`
		Token       *secret `json:"token"`
		SSHKey      string  `json:"ssh_key"`
		KnownHosts  string  `json:"known_hosts"`
		AllowHTTP   bool    `json:"allow_http"`
		StatusURL   string  `json:"status_url"`
		StatusToken *secret `json:"status_token"`
		Accept      string  `json:"accept"`
		Directory   string  `json:"directory"`
		SigningKey  string  `json:"signing_key"`
	} `json:"repository"`
	Tenants   map[string]*tenantConfig `json:"tenants"`
	Authority struct {
		Administrators    []string `json:"administrators"`
		AdministratorKeys []string `json:"administrator_keys"`
		TrustMain         bool     `json:"trust_main"`
		TrustLocalCommits bool     `json:"trust_local_commits"`
	} `json:"authority"`
	GitHub *struct {
		APIURL            string  `json:"api_url"`
		Owner             string  `json:"owner"`
		Repository        string  `json:"repository"`
		Token             *secret `json:"token"`
		App               *appID  `json:"app"`
		Login             string  `json:"login"`
		Report            string  `json:"report"`
		WebhookSecret     secret  `json:"webhook_secret"`
		WebhookSecretNext *secret `json:"webhook_secret_next"`
	} `json:"github"`
	Listen string     `json:"listen"`
	TLS    *tlsConfig `json:"tls"`
	SSH    *struct {
		User       string `json:"user"`
		Key        string `json:"key"`
		KnownHosts string `json:"known_hosts"`
	} `json:"ssh"`
	MemoryRuntime *memoryConfig `json:"memory_runtime"`
	API           *apiConfig    `json:"api"`
	Features      featureConfig `json:"features"`
	Interval      duration      `json:"interval"`
	Poll          duration      `json:"poll"`
	FlushWindow   duration      `json:"flush_window"`
	Retention     duration      `json:"retention"`
	Workers       int           `json:"workers"`
	MaxAttempts   int           `json:"max_attempts"`

	Artifacts artifactsConfig `json:"artifacts"`

	pacer *github.Pacer // see paces
}

// memoryConfig is berth.yaml's memory_runtime section.
type memoryConfig struct {
	Directory string   `json:"directory"`
	Backends  []string `json:"backends"`
}

// appID is a GitHub App as it is installed.
type appID struct {
	ID           int64  `json:"id"`
	Installation int64  `json:"installation"`
	Key          secret `json:"key"`
}

func defaults() config {
	c := config{
		Estate: "estate", Workers: 4, MaxAttempts: 10,
		Interval: duration(5 * time.Second), Poll: duration(time.Minute), FlushWindow: duration(time.Second),
		Retention: duration(90 * 24 * time.Hour),
	}
	c.Repository.Branch = "main"
	return c
}

// duration is a time.Duration written as "5s".
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

// secret says where a secret is; berth.yaml never holds one itself. Its value
// is read when it is used, so that a rotated one is taken up.
type secret struct {
	File string `json:"file,omitempty"`
	Env  string `json:"env,omitempty"`
}

// place is where the secret is.
func (s *secret) place() string {
	if s.File != "" {
		return s.File
	}
	return "the environment variable " + s.Env
}

// read returns the secret without the line end editors add.
func (s *secret) read() (string, error) {
	if s == nil {
		return "", nil
	}
	var value string
	if s.File != "" {
		data, err := os.ReadFile(s.File)
		if err != nil {
			return "", fmt.Errorf("secret: %w", err)
		}
		value = strings.TrimRight(string(data), "\r\n")
	} else {
		value = os.Getenv(s.Env)
	}
	if value == "" {
		return "", fmt.Errorf("the secret in %s%s is empty", s.File, s.Env)
	}
	return value, nil
}

// settings are the definitions of config.cue.
var settings = sync.OnceValues(func() (*load.Settings, error) { return load.NewSettings(configCUE, "#Configuration") })

// readConfig reads and checks berth.yaml. The error lists all mistakes, each with
// file, line and column.
func ReadConfig(path string) (*config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration: %s: no such file; name the configuration with -c, or make an estate that has one: berth init DIR", path)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	check, err := settings()
	if err != nil {
		return nil, err
	}
	file := check.Read(path, data)
	found := hideSecrets(file)
	c, err := decodeConfig(file.Value, found)
	if err != nil {
		return nil, fmt.Errorf("configuration: %s: %w", path, err)
	}
	for _, m := range c.misfits() {
		if wrong := slices.ContainsFunc(found, func(d schema.Diagnostic) bool { return section(d.Path) == section(m.field) }); wrong || file.Value == nil {
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

// mistakes is one error for all findings, in the order of the file.
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

// section is the first step of a field's path.
func section(path string) string {
	if end := strings.IndexAny(path, ".["); end >= 0 {
		return path[:end]
	}
	return path
}

// decodeConfig decodes the sections of a file without findings, over the defaults.
func decodeConfig(value map[string]any, found []schema.Diagnostic) (*config, error) {
	c := defaults()
	right := maps.Clone(value)
	for _, d := range found {
		delete(right, section(d.Path))
	}
	data, err := json.Marshal(right)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// resolve fills in what depends on other fields and on the file's directory.
func (c *config) resolve(path string) error {
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
	if gh := c.GitHub; gh != nil {
		gh.APIURL = cmp.Or(gh.APIURL, "https://api.github.com/")
		if gh.Report == "" && gh.Token != nil {
			gh.Report = "statuses"
		}
	}
	if c.SSH != nil {
		c.SSH.User = cmp.Or(c.SSH.User, "berth")
	}
	return nil
}

// isLocal says whether the repository is a directory of this machine.
func (c *config) isLocal() bool {
	u := c.Repository.URL
	return u != "" && (strings.HasPrefix(u, "file://") || !strings.Contains(u, "://"))
}

// misfit is a finding about fields that do not go together.
type misfit struct {
	at      string // what is there, for the place in the file
	field   string
	message string
}

// misfits are what the definition cannot say well: what is missing because of
// something else.
func (c *config) misfits() []misfit {
	var out []misfit
	tell := func(wrong bool, at, field, message string) {
		if wrong {
			out = append(out, misfit{at, field, message})
		}
	}
	r := c.Repository
	tell(hasCredentials(r.URL), "repository.url", "repository.url", credentialsNote)
	tell(hasCredentials(r.StatusURL), "repository.status_url", "repository.status_url", credentialsNote)
	ssh := strings.HasPrefix(r.URL, "ssh://") || strings.HasPrefix(r.StatusURL, "ssh://")
	tell(ssh && r.SSHKey == "", "repository", "repository.ssh_key", "an ssh:// URL needs it: add the path of a private key that may push")
	tell(ssh && r.KnownHosts == "", "repository", "repository.known_hosts", "an ssh:// URL needs it: add the path of a file that pins the host's key, as ssh-keyscan prints it and you have checked it")
	tell(!ssh && r.SSHKey != "", "repository.ssh_key", "repository.ssh_key", "it is for ssh:// URLs: take it out, or write the URL as ssh://git@HOST/PATH")
	tell(!ssh && r.KnownHosts != "", "repository.known_hosts", "repository.known_hosts", "it is for ssh:// URLs: take it out, or write the URL as ssh://git@HOST/PATH")
	tell(r.StatusURL == "" && r.StatusToken != nil, "repository.status_token", "repository.status_token", "it is for status_url: add that, or take this out")
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		c.Tenants[name].misfits(name, tell)
	}
	who := c.Authority
	named := len(who.Administrators)+len(who.AdministratorKeys) > 0
	tell(len(who.Administrators) == 0 && !who.TrustMain && !who.TrustLocalCommits, "authority", "authority.administrators", "no user could make the first change: add a login, or say trust_main: true to let whoever can push change everything")
	tell(who.TrustLocalCommits && !c.isLocal(), "authority.trust_local_commits", "authority.trust_local_commits", "it is for a repository in a local directory only: remove it, and name the administrators of this repository")
	tell(who.TrustLocalCommits && named, "authority.trust_local_commits", "authority.trust_local_commits", "whoever can commit may change everything then: remove it, or the administrators")
	tell(who.TrustLocalCommits && who.TrustMain, "authority.trust_local_commits", "authority.trust_local_commits", "trust_main says the same: remove one of the two")
	c.misfitsOfTrial(tell)
	for i, key := range c.Authority.AdministratorKeys {
		if err := signature.CheckKey(key); err != nil {
			tell(true, "authority.administrator_keys", fmt.Sprintf("authority.administrator_keys[%d]", i), err.Error())
		}
	}
	tell(named && c.Authority.TrustMain, "authority.trust_main", "authority.trust_main", "everybody may change everything then: take it out, or the administrators")
	_, err := strconv.ParseUint(c.Listen[strings.LastIndex(c.Listen, ":")+1:], 10, 16)
	tell(c.Listen != "" && err != nil, "listen", "listen", "there is no such port: choose one up to 65535")
	for path, s := range c.secrets() {
		tell((s.File == "") == (s.Env == ""), path, path, secretNote)
	}
	for _, a := range c.Artifacts.Addresses {
		_, err := netip.ParsePrefix(a)
		tell(err != nil, "artifacts.addresses", "artifacts.addresses", fmt.Sprintf("%s is no range of addresses: write it as 127.0.0.1/32", a))
	}
	if gh := c.GitHub; gh != nil {
		tell(gh.Token == nil && gh.App == nil, "github", "github.token", "there is none: add token: {file: /PATH}, or app: {id: …, installation: …, key: {file: /PATH}}")
		tell(gh.Token != nil && gh.App != nil, "github.app", "github.app", "there is a token as well: take one of the two out")
		tell(gh.App != nil && gh.Login == "", "github.app", "github.login", "an App cannot ask who it is: add its slug and [bot], such as berth-lab[bot]")
		tell(gh.App == nil && gh.Report == "checks" && !strings.HasSuffix(gh.Login, "[bot]"), "github.report", "github.report", "GitHub lets only an App write check runs: remove it to report commit statuses with this token, or configure app instead of token; if the token is an App's, say whose with login: SLUG[bot]")
		tell(gh.App != nil && gh.Report == "statuses", "github.report", "github.report", "an App writes check runs: take report out, or use a token instead of the App")
	}
	return out
}

// misfitsOfTrial are misfits of what Berth offers for a trial: a local repository
// and the memory runtime.
func (c *config) misfitsOfTrial(tell func(wrong bool, at, field, message string)) {
	r := c.Repository
	tell(c.isLocal() && (r.Token != nil || r.Username != ""), "repository", "repository.token", "a local repository takes no credential: remove token and username, or write the URL of the forge's repository")
	tell(c.isLocal() && c.GitHub != nil, "github", "github", "a local repository has no pull requests: remove github, or write the URL of the forge's repository in repository.url")
	if c.MemoryRuntime == nil {
		return
	}
	known := backends.Names()
	for i, b := range c.MemoryRuntime.Backends {
		at := fmt.Sprintf("memory_runtime.backends[%d]", i)
		tell(!slices.Contains(known, b), at, at, fmt.Sprintf("no runtime for %s is built in, there is %s", b, strings.Join(known, ", ")))
		tell(slices.Contains(known, b) && c.SSH != nil, at, at, fmt.Sprintf("ssh runs %s on hosts: remove it here, or remove ssh", b))
	}
}

// credentialsNote does not repeat the URL, which may hold a password.
const credentialsNote = "the URL holds a user or password, or cannot be read: write https://HOST/PATH or ssh://USER@HOST/PATH, and add token: {file: /PATH}"

// hasCredentials says whether a URL holds a password, or a user that is not for SSH.
// A URL that cannot be read may hold one.
func hasCredentials(raw string) bool {
	if !strings.Contains(raw, "://") {
		return false
	}
	u, err := url.Parse(raw)
	if err != nil {
		return true
	}
	_, password := u.User.Password()
	return password || u.User != nil && u.Scheme != "ssh"
}

// fileNotes replace findings about the whole file, which speak of documents.
var fileNotes = map[string]string{
	"yaml.empty":         "the file is empty: write the configuration, or make an estate that has one: berth init DIR",
	"yaml.not-a-mapping": "a configuration is a mapping: write key: value lines, such as estate: lab",
}

// secretNote replaces every finding about a secret: other words could repeat it.
const secretNote = "a secret is named here, not written: say {file: /PATH} or {env: NAME}"

// missingHints are what to add where a required field is missing.
var missingHints = map[string]string{
	"repository":              "add repository: {url: URL, directory: PATH}",
	"repository.url":          "add the URL of the repository with the declarations, or . for the directory of this file",
	"repository.directory":    "add the path of a directory for the cache",
	"authority":               "add authority: {administrators: [LOGIN]}, or {trust_local_commits: true} for a local repository",
	"memory_runtime.backends": "add backends: [slurm]",
}

// hideSecrets are the findings of a file; those within a secret become one each,
// which does not quote what is there.
func hideSecrets(file *load.SettingsFile) []schema.Diagnostic {
	var out []schema.Diagnostic
	seen := map[string]bool{}
	for _, d := range file.Findings {
		if at := secretIn(d.Path); d.Code == "schema.missing-field" {
			if at != "" {
				d.Message = at + ": is missing: name its file or variable, as {file: /PATH} or {env: NAME}"
			} else if hint := missingHints[d.Path]; hint != "" {
				d.Message = d.Path + ": is missing: " + hint
			}
		} else if note := fileNotes[d.Code]; note != "" {
			d.Message = note
		} else if at != "" {
			if seen[at] {
				continue
			}
			seen[at] = true
			d.Path, d.Message = at, at+": "+secretNote
			if file.Value != nil {
				d.Line, d.Column = file.Place(at)
			}
		}
		out = append(out, d)
	}
	return out
}

// secretIn is the part of a field's path that names a secret, or "".
func secretIn(path string) string {
	typ := reflect.TypeFor[config]()
	for rest := path; rest != ""; {
		var step string
		step, rest = cutStep(rest)
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch typ.Kind() {
		case reflect.Struct:
			field, ok := fieldNamed(typ, step)
			if !ok {
				return ""
			}
			typ = field.Type
		case reflect.Map, reflect.Slice:
			typ = typ.Elem()
		default:
			return ""
		}
		if typ == reflect.TypeFor[secret]() || typ == reflect.TypeFor[*secret]() {
			return strings.TrimSuffix(strings.TrimSuffix(path, rest), ".")
		}
	}
	return ""
}

// cutStep takes the first key or index off a field's path.
func cutStep(path string) (step, rest string) {
	if strings.HasPrefix(path, "[") {
		step, rest, _ = strings.Cut(path[1:], "]")
		return step, strings.TrimPrefix(rest, ".")
	}
	if quoted, err := strconv.QuotedPrefix(path); err == nil {
		step, _ = strconv.Unquote(quoted) // it was just found to be quoted
		return step, strings.TrimPrefix(path[len(quoted):], ".")
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, ""
	}
	return path[:end], strings.TrimPrefix(path[end:], ".")
}

// secrets are the secrets that a configuration names, by the paths of their fields.
func (c *config) secrets() map[string]secret {
	out := map[string]secret{}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if s, ok := v.Interface().(secret); ok {
			out[path] = s
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem(), path)
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			}
		case reflect.Map:
			for _, k := range v.MapKeys() {
				walk(v.MapIndex(k), strings.TrimPrefix(path+"."+k.String(), "."))
			}
		case reflect.Struct:
			for f, value := range v.Fields() {
				if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
					walk(value, strings.TrimPrefix(path+"."+tag, "."))
				}
			}
		}
	}
	walk(reflect.ValueOf(c), "")
	return out
}

// fieldNamed is the field of a struct that berth.yaml calls so.
func fieldNamed(typ reflect.Type, name string) (reflect.StructField, bool) {
	for f := range typ.Fields() {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
