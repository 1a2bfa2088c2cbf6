package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"berth/reconciler/gitrepo"
	"berth/schema"
	"berth/schema/load"
	"berth/webhooks/forge"
)

// authority returns warnings about people whom Berth cannot recognize.
func (w warningCheck) authority() (out []string) {
	a := w.config.Authority
	if len(a.Administrators) > 0 && len(a.AdministratorKeys) == 0 && w.config.Forge == nil {
		out = append(out, "authority.administrators: no commit counts as one of "+strings.Join(a.Administrators,
			", ")+": without the section forge Berth knows authors by signatures only; add their keys to administrator_keys")
	}
	if a.TrustMain && w.config.Forge != nil {
		out = append(out, "authority.trust_main: makes Berth ignore who wrote and approved a change, which the section forge shows: "+
			"remove "+
			"trust_main, and name administrators")
	}
	if w.config.API == nil || w.config.API.OIDC == nil {
		return out
	}
	if strings.Contains(w.config.API.OIDC.Issuer, "/.well-known/") {
		out = append(out, "api.oidc.issuer: is the address of its configuration: write the issuer, which is the part before /.well-known/")
	}
	const usual = "preferred_username"
	switch claim := strings.ToLower(w.config.API.OIDC.LoginClaim); {
	case claim == "" || claim == usual:
	case strings.Contains(claim, "email"):
		out = append(out,
			"api.oidc.login_claim: an email is not a login at the forge, which is what role bindings name: write the claim that has it, "+
				"such as "+usual)
	case load.Nearest(claim, []string{usual}) != "":
		out = append(out, fmt.Sprintf("api.oidc.login_claim: %q: did you mean %q?", w.config.API.OIDC.LoginClaim, usual))
	case !strings.HasSuffix(claim, "login") && !strings.HasSuffix(claim, "username"):
		out = append(out,
			fmt.Sprintf("api.oidc.login_claim: %q is not known to hold the login at the forge; a user who can change it can act as "+
				"another: use a claim that only the provider sets, such as %s", w.config.API.OIDC.LoginClaim, usual))
	}
	return out
}

// ownDirectories are the directories that Berth writes to, by field.
func (c *Config) ownDirectories() map[string]string {
	own := map[string]string{"repository.directory": c.Repository.Directory}
	if c.MemoryRuntime != nil {
		own["memory_runtime.directory"] = c.MemoryRuntime.Directory
	}
	return own
}

// directories returns warnings about directories that do not stay, or that hold other files. path is berth.yaml.
func (w warningCheck) directories(path string) (out []string) {
	foreign := []string{"/etc", "/usr", "/boot", "/proc", "/sys"}
	volatile := []string{"/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm"} // file-hierarchy(7)
	own := w.config.ownDirectories()
	beside, err := filepath.Abs(filepath.Dir(path))
	for field, dir := range schema.Sorted(own) {
		if i := slices.IndexFunc(volatile, func(v string) bool { return within(v, dir) }); i >= 0 && (err != nil ||
			!within(beside, dir)) { // beside a trial's berth.yaml, it goes when that goes
			out = append(out,
				fmt.Sprintf("%s: the system empties %s, at a reboot or after some days: choose a directory that stays, such as "+
					"/var/lib/berth", field, volatile[i]))
		}
		of := slices.IndexFunc(foreign, func(v string) bool { return within(v, dir) })
		entries, err := os.ReadDir(dir)
		_, noMirror := os.Stat(gitrepo.MirrorDir(dir))
		switch {
		case of >= 0:
			out = append(out, fmt.Sprintf("%s: %s is not for program data: choose another directory, such as /var/lib/berth", field,
				foreign[of]))
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			out = append(out, fmt.Sprintf("%s: %v: choose a directory that Berth may write to", field, err))
		case field == "repository.directory" && slices.ContainsFunc(entries, isForeign) && noMirror != nil:
			out = append(out,
				fmt.Sprintf("%s: %s holds other files, and Berth deletes and writes there: choose a directory of its own, such as "+
					"/var/lib/berth", field, dir))
		}
	}
	return out
}

// isForeign reports whether Berth did not make an entry of its directory, nor the file system.
func isForeign(e fs.DirEntry) bool {
	return !slices.Contains([]string{"lost+found", "break-glass", "deliveries"}, e.Name()) && !strings.HasSuffix(e.Name(), ".json")
}

// within reports whether a path is a directory or below it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// purposeOf returns the purpose of a secret. Two fields of one purpose may have the same secret.
func (w warningCheck) purposeOf(field string) string {
	switch {
	case strings.HasPrefix(field, "api.tokens"):
		return "a token of the API"
	case strings.HasPrefix(field, "artifacts."):
		return "a password of a registry"
	case slices.ContainsFunc(w.config.forgeWebhookSecrets(), func(s forge.SecretField) bool { return s.Field == field }):
		return "the webhook secret"
	case strings.HasPrefix(field, "ssh."):
		return "the key to the hosts"
	case strings.HasPrefix(field, "tls."):
		return "the key of the certificate"
	case field == "repository.signing_key":
		return "the key that signs commits"
	}
	return "a credential at the forge"
}

// forgeWebhookSecrets returns the secrets that sign deliveries of the forge.
func (c *Config) forgeWebhookSecrets() []forge.SecretField {
	if c.Forge == nil {
		return nil
	}
	return c.Forge.WebhookSecrets()
}

// isKeyOfForge reports whether a secret is a key of the forge, which has several lines.
func (w warningCheck) isKeyOfForge(field string) bool {
	return w.config.Forge != nil && slices.Contains(w.config.Forge.KeyFields(), field)
}

// sharedSecrets reports secrets and private keys that serve two purposes: a user who knows one could use
// the other. It compares contents, so that a copy or a link is found.
func (w warningCheck) sharedSecrets() (out []string) {
	values := w.config.secretValues()
	fields := slices.Sorted(maps.Keys(values))
	for i, field := range fields {
		for _, other := range fields[:i] {
			if a, b := w.purposeOf(field), w.purposeOf(other); values[field] == values[other] && a != b {
				out = append(out,
					fmt.Sprintf("%s: has the same value as %s: a user who knows %s can use it as %s; make two", field,
						other, b, a))
			}
		}
	}
	secrets, _ := w.config.references()
	for field, s := range secrets {
		value, err := s.Read()
		if err == nil && strings.Contains(value, "\n") && !w.isKeyOfForge(field) && !strings.HasPrefix(field, "artifacts.") {
			out = append(out, field+": the secret has several lines: write it on one, or name another file")
		}
	}
	slices.Sort(out)
	return out
}

// secretValues returns the readable secrets and private keys, by field, without the blanks around them.
func (c *Config) secretValues() map[string]string {
	secrets, files := c.references()
	values := map[string]string{}
	for field, s := range secrets {
		if value, err := s.Read(); err == nil {
			values[field] = strings.TrimSpace(value)
		}
	}
	for field, path := range files {
		if name := field[strings.LastIndex(field, ".")+1:]; name == "known_hosts" || name == "cert" {
			continue
		}
		if data, err := os.ReadFile(path); err == nil {
			values[field] = strings.TrimSpace(string(data))
		}
	}
	return values
}

// repeated reports values that a list has twice.
func (w warningCheck) repeated() (out []string) {
	for _, l := range textLists(reflect.ValueOf(w.config), "") {
		for i, text := range l.texts {
			isSame := func(was string) bool {
				return was == text || strings.EqualFold(was, text) && !strings.Contains(text, "/")
			}
			if slices.ContainsFunc(l.texts[:i], isSame) {
				out = append(out, fmt.Sprintf("%s[%d]: %q is there twice: take one out", l.path, i, text))
			}
		}
	}
	return out
}

// textList is a list of texts in a configuration.
type textList struct {
	path  string
	texts []string
}

// textLists returns the lists of texts in a value at a path, in the order of the fields.
func textLists(v reflect.Value, path string) (all []textList) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return textLists(v.Elem(), path)
		}
	case reflect.Struct:
		for f, value := range v.Fields() {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if tag != "" || f.Anonymous {
				all = append(all, textLists(value, strings.TrimPrefix(path+"."+tag, "."))...)
			}
		}
	case reflect.Slice:
		if texts, ok := v.Interface().([]string); ok {
			all = append(all, textList{path, texts})
		}
	}
	return all
}

// sameRepository reports whether two URLs name one repository.
func sameRepository(a, b string) bool {
	plain := func(u string) string { return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(u, "/"), ".git")) }
	return plain(a) == plain(b)
}
