package daemon

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"berth/reconciler/gitrepo"
	"berth/schema"
	"berth/schema/load"
	"berth/webhooks/forge"
	"berth/webhooks/secret"
)

// secretNote replaces every finding about a secret: another text could repeat it.
const secretNote = "a secret is named here, not written: write either {file: /ABSOLUTE/PATH} or {env: NAME}; NAME has no $"

// fileNotes replace findings about the whole file, which speak of documents.
var fileNotes = map[string]string{
	"yaml.empty":         "the file is empty: write the configuration, or make an estate that has one: berth init DIR",
	"yaml.not-a-mapping": "a configuration is a mapping: write key: value lines, such as estate: lab",
}

// missingHints are the lines to add for a missing required field.
var missingHints = map[string]string{
	"repository":              "add repository: {url: URL, directory: PATH}",
	"repository.url":          "add the URL of the repository with the declarations, or . for the directory of this file",
	"repository.directory":    "add the path of a directory for the cache",
	"authority":               "add authority: {administrators: [LOGIN]}, or {trust_local_commits: true} for a local repository",
	"memory_runtime.backends": "add backends: [slurm]",
}

// redactedFindings returns the findings of a file with a kind of forge. Those within a
// secret become one finding each, which does not quote the file.
func (r *registry) redactedFindings(file *load.SettingsFile, kind *forge.Kind) []schema.Diagnostic {
	var out []schema.Diagnostic
	seen := map[string]bool{}
	for _, d := range file.Findings {
		at, note := secretIn(d.Path, kind), fileNotes[d.Code]
		switch {
		case d.Code == "schema.missing-field":
			if hint := r.missingHint(d.Path, at); hint != "" {
				d.Message = cmp.Or(at, d.Path) + ": is missing: " + hint
			}
		case d.Path == "authority.trust_main":
			d.Message = d.Path + ": is true or absent; without it, name the administrators"
		case note != "":
			d.Message = note
		case at != "" && seen[at]:
			continue
		case at != "":
			seen[at] = true
			d.Path, d.Message = at, at+": "+secretHint(strings.TrimPrefix(d.Path, at+"."), d.Code)
			if file.Value != nil {
				d.Line, d.Column = file.Place(at)
			}
		}
		out = append(out, d)
	}
	return out
}

// missingHint says what to add for a missing field of a secret, or another one; "" if that is not known.
func (r *registry) missingHint(path, secret string) string {
	switch {
	case secret != "":
		return "name its file or variable, as {file: /PATH} or {env: NAME}"
	case path == "forge.kind":
		return "add kind: " + strings.Join(r.names(), " or ")
	}
	return missingHints[path]
}

// secretHint says what is wrong below the field of a secret, by the path below it and the code of the finding.
func secretHint(below, code string) string {
	form, _, hasColon := strings.Cut(strings.TrimPrefix(below, `"`), ":")
	switch {
	case below == "file" && code == "schema.pattern":
		return secretNote + "; the path begins with /, and ~ is not expanded"
	case hasColon && (form == "file" || form == "env"):
		return "a space is missing behind the colon: write {file: /PATH} or {env: NAME}"
	}
	return secretNote
}

// secretIn returns the part of a field's path that names a secret, or "". kind is that of
// the section forge.
func secretIn(path string, kind *forge.Kind) string {
	typ := reflect.TypeFor[Config]()
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
			if typ = field.Type; typ == reflect.TypeFor[forge.Section]() {
				typ = reflect.TypeOf(kind.New())
			}
		case reflect.Map, reflect.Slice:
			typ = typ.Elem()
		default:
			return ""
		}
		if typ == reflect.TypeFor[secret.Ref]() || typ == reflect.TypeFor[*secret.Ref]() {
			return strings.TrimSuffix(strings.TrimSuffix(path, rest), ".")
		}
	}
	return ""
}

// cutStep cuts the first key or index off a field's path.
func cutStep(path string) (step, rest string) {
	if strings.HasPrefix(path, "[") {
		step, rest, _ = strings.Cut(path[1:], "]")
		return step, strings.TrimPrefix(rest, ".")
	}
	if quoted, err := strconv.QuotedPrefix(path); err == nil {
		step, _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
		return step, strings.TrimPrefix(path[len(quoted):], ".")
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, ""
	}
	return path[:end], strings.TrimPrefix(path[end:], ".")
}

// fieldNamed returns the field of a struct by its name in berth.yaml.
func fieldNamed(typ reflect.Type, name string) (reflect.StructField, bool) {
	return typ.FieldByNameFunc(func(goName string) bool {
		f, _ := typ.FieldByName(goName)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return tag == name
	})
}

// references returns the secrets of a configuration and the other files that it names,
// both by the paths of their fields.
func (c *Config) references() (secrets map[string]secret.Ref, files map[string]string) {
	r := references{secrets: map[string]secret.Ref{}, files: map[string]string{}}
	r.visit(reflect.ValueOf(c), "", "")
	return r.secrets, r.files
}

// references collects the files and secrets that a configuration names.
type references struct {
	secrets map[string]secret.Ref // by path of the field
	files   map[string]string     // by path of the field
}

// visit collects from a value. path leads to it, and name is the last step.
func (r *references) visit(v reflect.Value, path, name string) {
	below := func(v reflect.Value, name string) { r.visit(v, strings.TrimPrefix(path+"."+name, "."), name) }
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			r.visit(v.Elem(), path, name)
		}
	case reflect.Slice:
		for i := range v.Len() {
			r.visit(v.Index(i), fmt.Sprintf("%s[%d]", path, i), name)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			below(v.MapIndex(k), k.String())
		}
	case reflect.Struct:
		if s, ok := v.Interface().(secret.Ref); ok {
			r.secrets[path] = s
			return
		}
		for f, value := range v.Fields() {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
				below(value, tag)
			}
		}
	case reflect.String:
		if slices.Contains([]string{"key", "cert", "ssh_key", "known_hosts", "signing_key"}, name) && v.String() != "" {
			r.files[path] = v.String()
		}
	}
}

// checkFiles reads the files and secrets that a configuration names. The error lists
// all that cannot be used, each once and with its field.
func (c *Config) checkFiles() error {
	problems := c.fileProblems()
	var errs []error
	inTokens := false
	for field, err := range schema.Sorted(problems) {
		errs = append(errs, fmt.Errorf("%s: %w", field, err))
		inTokens = inTokens || strings.HasPrefix(field, "api.tokens")
	}
	if c.Forge != nil && !slices.ContainsFunc(c.Forge.KeyFields(), func(field string) bool { return problems[field] != nil }) {
		_, err := c.Forge.Access()
		errs = append(errs, err)
	}
	if c.API != nil && !inTokens {
		errs = append(errs, (&personTokens{tokens: c.API.Tokens}).read(time.Now()))
	}
	return errors.Join(errs...)
}

// fileProblems returns why files and secrets cannot be used, by field.
func (c *Config) fileProblems() map[string]error {
	secrets, files := c.references()
	problems := map[string]error{}
	for field, s := range secrets {
		_, problems[field] = s.Read()
	}
	for field, path := range files {
		data, err := os.ReadFile(path)
		if err == nil {
			err = checkKey(field, data)
		}
		problems[field] = err
	}
	if dir, ok := c.LocalRepository(); ok {
		_, problems["repository.url"] = gitrepo.Locate(dir)
	}
	if t := c.TLS; t != nil && problems["tls.cert"] == nil && problems["tls.key"] == nil {
		field, err := t.checkKeyPair()
		problems[field] = err
	}
	maps.DeleteFunc(problems, func(_ string, err error) bool { return err == nil })
	return problems
}

// checkKeyPair returns the fault of the certificate or of its key, and the field.
func (t *tlsConfig) checkKeyPair() (field string, err error) {
	_, err = tls.LoadX509KeyPair(t.Cert, t.Key)
	switch {
	case err == nil:
		return "", nil
	case strings.Contains(err.Error(), "does not match"):
		return "tls.key", errors.New("the file is the key of another certificate than tls.cert: name the one that came with it")
	case strings.Contains(err.Error(), "private key"), strings.Contains(err.Error(), "key input"):
		return "tls.key", errors.New("the file is not the private key of a certificate: name the PEM file that came with tls.cert, which " +
			"has a line such as -----BEGIN PRIVATE KEY-----")
	}
	return "tls.cert", err
}

// minWebhookSecret is the length of a webhook secret in characters.
const minWebhookSecret = 16

// weakSecrets reports webhook secrets that can be guessed. A daemon that has one goes on.
func (c *Config) weakSecrets() error {
	var errs []error
	for _, one := range c.forgeWebhookSecrets() {
		if value, err := one.Read(); err == nil && len(value) < minWebhookSecret {
			errs = append(errs, fmt.Errorf("%s: the secret is shorter than %d characters, and whoever guesses it can forge deliveries: "+
				"take one that openssl rand -hex 32 prints", one.Field, minWebhookSecret))
		}
	}
	return errors.Join(errs...)
}

// checkKey reports that a file is not the private key for SSH that its field names.
func checkKey(field string, data []byte) error {
	if step := field[strings.LastIndex(field, ".")+1:]; field != "ssh.key" && step != "ssh_key" && step != "signing_key" {
		return nil
	}
	_, err := ssh.ParsePrivateKey(data)
	var locked *ssh.PassphraseMissingError
	switch _, _, _, _, notPublic := ssh.ParseAuthorizedKey(data); {
	case err == nil:
		return nil
	case notPublic == nil:
		return errors.New("the file holds a public key: name the private one, which is usually the path without .pub")
	case errors.As(err, &locked):
		return errors.New("the private key has a passphrase, which nobody can enter here: make one without (ssh-keygen -t ed25519 -N '')")
	}
	return fmt.Errorf("the file holds no private key that Berth can read: %w", err)
}
