package main

import (
	_ "embed"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	cueyaml "cuelang.org/go/encoding/yaml"
	"sigs.k8s.io/yaml"

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
	MemoryRuntime *struct {
		Directory string `json:"directory"`
	} `json:"memory_runtime"`
	API         *apiConfig    `json:"api"`
	Features    featureConfig `json:"features"`
	Interval    duration      `json:"interval"`
	Poll        duration      `json:"poll"`
	FlushWindow duration      `json:"flush_window"`
	Retention   duration      `json:"retention"`
	Workers     int           `json:"workers"`
	MaxAttempts int           `json:"max_attempts"`

	Artifacts artifactsConfig `json:"artifacts"`

	pacer *github.Pacer // see paces
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

// readConfig reads and checks berth.yaml. Each finding stands on a line of its
// own with file, line and column.
func readConfig(path string) (*config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	// Duplicate keys and the like first: CUE would unify them silently.
	if _, err := yaml.YAMLToJSONStrict(data); err != nil {
		return nil, fmt.Errorf("configuration: %s: %w", path, err)
	}
	f, err := cueyaml.Extract(path, data)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	ctx := cuecontext.New()
	schema := ctx.CompileString(configCUE, cue.Filename("config.cue")).LookupPath(cue.ParsePath("#Configuration"))
	said := ctx.BuildExpr(&ast.StructLit{Elts: f.Decls})
	v := schema.Unify(said)
	if err := v.Validate(cue.Concrete(true), cue.All()); err != nil {
		return nil, configError(path, said, err)
	}
	c := defaults()
	if err := v.Decode(&c); err != nil {
		return nil, fmt.Errorf("configuration: %s: %w", path, err)
	}
	var lines []string
	for _, m := range c.misfits() {
		pos := said.LookupPath(cue.ParsePath(m.at)).Pos()
		lines = append(lines, fmt.Sprintf("%s:%d:%d: %s: %s", path, pos.Line(), pos.Column(), m.field, m.message))
	}
	if lines != nil {
		return nil, fmt.Errorf("configuration: %s", strings.Join(lines, "\n"))
	}
	if c.GitHub != nil && c.GitHub.APIURL == "" {
		c.GitHub.APIURL = "https://api.github.com/"
	}
	if c.SSH != nil && c.SSH.User == "" {
		c.SSH.User = "berth"
	}
	return &c, nil
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
	ssh := strings.HasPrefix(r.URL, "ssh://") || strings.HasPrefix(r.StatusURL, "ssh://")
	tell(ssh && r.SSHKey == "", "repository", "repository.ssh_key", "an ssh:// URL needs it: add the path of a private key that may push")
	tell(ssh && r.KnownHosts == "", "repository", "repository.known_hosts", "an ssh:// URL needs it: add the path of a file that pins the host's key, as ssh-keyscan prints it and you have checked it")
	tell(!ssh && r.SSHKey != "", "repository.ssh_key", "repository.ssh_key", "it is for ssh:// URLs: take it out, or write the URL as ssh://git@HOST/PATH")
	tell(!ssh && r.KnownHosts != "", "repository.known_hosts", "repository.known_hosts", "it is for ssh:// URLs: take it out, or write the URL as ssh://git@HOST/PATH")
	tell(r.StatusURL == "" && r.StatusToken != nil, "repository.status_token", "repository.status_token", "it is for status_url: add that, or take this out")
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		c.Tenants[name].misfits(name, tell)
	}
	tell(len(c.Authority.Administrators) == 0 && !c.Authority.TrustMain, "authority", "authority.administrators", "there is none, so nobody could begin: add a login, or say trust_main: true to let whoever can push change everything")
	for i, key := range c.Authority.AdministratorKeys {
		if err := signature.CheckKey(key); err != nil {
			tell(true, "authority.administrator_keys", fmt.Sprintf("authority.administrator_keys[%d]", i), err.Error())
		}
	}
	tell(len(c.Authority.Administrators)+len(c.Authority.AdministratorKeys) > 0 && c.Authority.TrustMain, "authority.trust_main", "authority.trust_main", "everybody may change everything then: take it out, or the administrators")
	for _, a := range c.Artifacts.Addresses {
		_, err := netip.ParsePrefix(a)
		tell(err != nil, "artifacts.addresses", "artifacts.addresses", fmt.Sprintf("%s is no range of addresses: write it as 127.0.0.1/32", a))
	}
	if gh := c.GitHub; gh != nil {
		tell(gh.Token == nil && gh.App == nil, "github", "github.token", "there is none: add token: {file: /PATH}, or app: {id: …, installation: …, key: {file: /PATH}}")
		tell(gh.Token != nil && gh.App != nil, "github.app", "github.app", "there is a token as well: take one of the two out")
		tell(gh.App != nil && gh.Login == "", "github.app", "github.login", "an App cannot ask who it is: add its slug and [bot], such as berth-lab[bot]")
		tell(gh.App != nil && gh.Report == "statuses", "github.report", "github.report", "an App writes check runs: take report out, or use a token instead of the App")
	}
	return out
}

// configError says each thing that is wrong once, at its place in the file.
func configError(path string, said cue.Value, err error) error {
	seen := map[string]bool{}
	var lines []string
	for _, e := range errors.Errors(err) {
		where := path
		for _, p := range errors.Positions(e) {
			if p.Filename() == path {
				where = fmt.Sprintf("%s:%d:%d", path, p.Line(), p.Column())
				break
			}
		}
		format, args := e.Msg()
		message, steps := fmt.Sprintf(format, args...), e.Path()
		if len(steps) > 0 && steps[0] == "#Configuration" {
			steps = steps[1:]
		}
		if n, at := secretIn(steps); n > 0 {
			if v := said.LookupPath(at); v.Exists() {
				// CUE's words are of a disjunction, and may quote what should not stand there.
				steps, message = steps[:n], "a secret is named here, not written: say {file: /PATH} or {env: NAME}"
				where = fmt.Sprintf("%s:%d:%d", path, v.Pos().Line(), v.Pos().Column())
			}
		}
		field := strings.Join(steps, ".")
		if line := fmt.Sprintf("%s: %s: %s", where, field, message); !seen[field] {
			seen[field] = true
			lines = append(lines, line)
		}
	}
	return fmt.Errorf("configuration: %s", strings.Join(lines, "\n"))
}

// secretIn is where on the way to a field a secret is named, and how many steps it
// takes there; 0: nowhere.
func secretIn(steps []string) (n int, at cue.Path) {
	typ := reflect.TypeFor[config]()
	var path []cue.Selector
	for i, step := range steps {
		if unquoted, err := strconv.Unquote(step); err == nil {
			step = unquoted
		}
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		selector := cue.Str(step)
		switch typ.Kind() {
		case reflect.Struct:
			field, ok := fieldNamed(typ, step)
			if !ok {
				return 0, cue.Path{}
			}
			typ = field.Type
		case reflect.Map:
			typ = typ.Elem()
		case reflect.Slice:
			index, err := strconv.Atoi(step)
			if err != nil {
				return 0, cue.Path{}
			}
			typ, selector = typ.Elem(), cue.Index(index)
		default:
			return 0, cue.Path{}
		}
		path = append(path, selector)
		if typ == reflect.TypeFor[secret]() || typ == reflect.TypeFor[*secret]() {
			return i + 1, cue.MakePath(path...)
		}
	}
	return 0, cue.Path{}
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
