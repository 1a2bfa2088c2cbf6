package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/signature"
	"berth/webhooks/forge"
)

// fieldConflict is a finding about fields that exclude or need each other.
type fieldConflict struct {
	at      string // path of a field that exists, for the place in the file
	field   string
	message string
}

// conflictCheck checks fields of a configuration that exclude or need each other, a section at a time.
type conflictCheck struct {
	config *Config
	check  forge.Check
	kinds  []forge.Kind // the known forges
}

// conflicts checks the rules that config.cue cannot express: fields that exclude or
// need each other. kinds are the known forges.
func (c *Config) conflicts(kinds []forge.Kind) []fieldConflict {
	var out []fieldConflict
	check := func(wrong bool, at, field, message string) {
		if wrong {
			out = append(out, fieldConflict{at, field, message})
		}
	}
	k := conflictCheck{c, check, kinds}
	k.repository()
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		c.Tenants[name].conflicts(name, check, kinds)
	}
	k.authority()
	k.trial()
	k.listen()
	secrets, _ := c.references()
	for path, s := range secrets {
		check((s.File == "") == (s.Env == ""), path, path, secretNote)
	}
	isRange := func(a, at string) {
		_, err := netip.ParsePrefix(a)
		check(err != nil, at, at, fmt.Sprintf("%s is not an address range: write it as 127.0.0.1/32", a))
	}
	for _, a := range c.Artifacts.Addresses {
		isRange(a, "artifacts.addresses")
	}
	if c.Rules != nil {
		for _, a := range c.Rules.Addresses {
			isRange(a, "rules.addresses")
		}
	}
	if c.Forge != nil {
		c.Forge.Conflicts(check)
	}
	k.peers()
	if c.API != nil && c.API.OIDC != nil {
		check(isPlainHTTP(c.API.OIDC.Issuer), "api.oidc.issuer", "api.oidc.issuer",
			"plain HTTP to another machine lets every user of the network forge tokens: use https://")
	}
	k.ranges()
	return out
}

// listen checks the address of the API and the webhooks.
func (k conflictCheck) listen() {
	if k.config.Listen == "" {
		return
	}
	const want = "an address and a port without a scheme, such as 127.0.0.1:8080, [::1]:8080 or :8080"
	host, port, err := net.SplitHostPort(k.config.Listen)
	_, noAddress := netip.ParseAddr(host)
	isName := strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && strings.Trim(host, "0123456789.") != ""
	switch _, wrong := strconv.ParseUint(port, 10, 16); {
	case strings.Contains(k.config.Listen, "/") || err != nil:
		k.check(true, "listen", "listen", "it is "+want)
	case host != "" && noAddress != nil && !isName:
		k.check(true, "listen", "listen", fmt.Sprintf("%q is not an address; write %s", host, want))
	default:
		k.check(wrong != nil, "listen", "listen", "the port is out of range: choose one up to 65535")
	}
}

// repository checks the repository of the estate and the directory of the cache.
func (k conflictCheck) repository() {
	r := k.config.Repository
	k.check(!r.AllowHTTP && isPlainHTTP(r.URL), "repository.url", "repository.url", httpNote)
	k.check(!r.AllowHTTP && isPlainHTTP(r.StatusURL), "repository.status_url", "repository.status_url", httpNote)
	k.check(hasCredentials(r.URL), "repository.url", "repository.url", credentialsNote)
	k.check(hasCredentials(r.StatusURL), "repository.status_url", "repository.status_url", credentialsNote)
	k.check(isPage(r.URL, k.kinds), "repository.url", "repository.url", pageNote)
	k.check(!isRemote(r.URL), "repository.url", "repository.url", remoteNote)
	k.check(!isRemote(r.StatusURL), "repository.status_url", "repository.status_url", remoteNote)
	short := strings.TrimPrefix(r.Branch, "refs/heads/")
	k.check(short != r.Branch, "repository.branch", "repository.branch", "write the name of the branch alone: "+short)
	k.check(isPage(r.StatusURL, k.kinds), "repository.status_url", "repository.status_url", pageNote)
	k.check(r.Branch == "berth" || strings.HasPrefix(r.Branch, "berth/"), "repository.branch", "repository.branch",
		"the branches berth/* are Berth's own: write the branch that holds the documents, such as main")
	ssh := strings.HasPrefix(r.URL, "ssh://") || strings.HasPrefix(r.StatusURL, "ssh://")
	sshConflicts(k.check, "repository", "repository.", ssh, r.SSHKey, r.KnownHosts, "push")
	k.check(r.StatusURL == "" && r.StatusToken != nil, "repository.status_token", "repository.status_token",
		"it is for status_url: add that, or take this out")

	const needsOwn = "Berth deletes and writes there, so it needs a directory of its own, such as .berth/cache"
	cache := filepath.Clean(r.Directory)
	k.check(cache == "." || cache == filepath.Clean(strings.TrimPrefix(r.URL, "file://")), "repository.directory", "repository.directory",
		"it is the directory of the repository or of this file: "+needsOwn)
	k.check(k.config.MemoryRuntime != nil && r.Directory != "" && cache == filepath.Clean(k.config.MemoryRuntime.Directory),
		"repository.directory", "repository.directory", "it is that of memory_runtime, too: "+needsOwn)
}

// pageNote is about a URL that a browser shows.
const pageNote = "this is a page of the forge: write the URL that git clone takes, such as https://HOST/OWNER/REPOSITORY.git, and the " +
	"branch in repository.branch"

// isPage reports whether a URL is of a page about a repository. Each forge knows those
// of its public server.
func isPage(raw string, kinds []forge.Kind) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || strings.HasSuffix(u.Path, ".git") {
		return false
	}
	return slices.ContainsFunc(kinds, func(k forge.Kind) bool { return k.IsPage(u) }) ||
		strings.HasPrefix(u.Hostname(), "api.") || u.RawQuery != "" || u.Fragment != "" ||
		slices.ContainsFunc([]string{"/tree/", "/blob/", "/-/", "/pull/", "/commits/"},
			func(part string) bool { return strings.Contains(u.Path+"/", part) })
}

// remoteNote is about a URL of another machine that names no repository.
const remoteNote = "the URL names no repository: write the one that git clone takes, without spaces, such as " +
	"https://HOST/OWNER/REPOSITORY.git"

// isRemote reports whether a URL of another machine can name a repository: it has a host, a port that exists,
// a path, and neither spaces nor the words of an example. Local paths and unreadable URLs are checked elsewhere.
func isRemote(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || !slices.Contains([]string{"https", "http", "ssh"}, u.Scheme) {
		return true
	}
	port, wrong := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16)
	return u.Hostname() != "" && port > 0 && wrong == nil && strings.Trim(u.Path, "/") != "" && !strings.ContainsAny(raw,
		" \t") && !strings.Contains(u.Path, "OWNER/REPOSITORY")
}

// authority checks the sources of permissions.
func (k conflictCheck) authority() {
	who := k.config.Authority
	named := len(who.Administrators)+len(who.AdministratorKeys) > 0
	k.check(len(who.Administrators) == 0 && !who.TrustMain && !who.TrustLocalCommits, "authority", "authority.administrators",
		"no user could make the first change: add a login, or say trust_main: true to let whoever can push change everything")
	k.check(who.TrustLocalCommits && k.config.Repository.URL != "" && !k.config.isLocal(), "authority.trust_local_commits",
		"authority.trust_local_commits",
		"it is for a repository in a local directory only: remove it, and name the administrators of this repository")
	k.check(who.TrustLocalCommits && named, "authority.trust_local_commits", "authority.trust_local_commits",
		"every user who can commit can change everything then: remove it, or the administrators")
	k.check(who.TrustLocalCommits && who.TrustMain, "authority.trust_local_commits", "authority.trust_local_commits",
		"trust_main says the same: remove one of the two")
	for i, key := range who.AdministratorKeys {
		if err := signature.CheckKey(key); err != nil {
			k.check(true, "authority.administrator_keys", fmt.Sprintf("authority.administrator_keys[%d]", i), err.Error())
		}
	}
	k.check(named && who.TrustMain, "authority.trust_main", "authority.trust_main",
		"everybody may change everything then: take it out, or the administrators")
}

// sshConflicts checks that an SSH key and the keys of hosts belong to an ssh:// URL.
// prefix is the prefix of the fields; may names the access that the key must allow.
func sshConflicts(check forge.Check, section, prefix string, isSSH bool, key, knownHosts, may string) {
	const note = "it is for ssh:// URLs: take it out, or write the URL as ssh://git@HOST/PATH"
	check(isSSH && key == "", section, prefix+"ssh_key", "an ssh:// URL needs it: add the path of a private key that may "+may)
	check(isSSH && knownHosts == "", section, prefix+"known_hosts",
		"an ssh:// URL needs it: add the path of a file that pins the host's key, as ssh-keyscan prints it and you have checked it")
	check(!isSSH && key != "", prefix+"ssh_key", prefix+"ssh_key", note)
	check(!isSSH && knownHosts != "", prefix+"known_hosts", prefix+"known_hosts", note)
}

// trial checks the fields for a trial: a local repository and the memory
// runtime.
func (k conflictCheck) trial() {
	r := k.config.Repository
	k.check(k.config.isLocal() && (r.Token != nil || r.Username != ""), "repository", "repository.token",
		"a local repository takes no credential: remove token and username, or write the URL of the forge's repository")
	k.check(k.config.isLocal() && k.config.Forge != nil, "forge", "forge",
		"a local repository has no pull requests: remove forge, or write the URL of the forge's repository in repository.url")
	if k.config.MemoryRuntime == nil {
		return
	}
	known := backends.Names()
	for i, b := range k.config.MemoryRuntime.Backends {
		at := fmt.Sprintf("memory_runtime.backends[%d]", i)
		k.check(!slices.Contains(known, b), at, at, fmt.Sprintf("no runtime for %s is built in, there is %s", b, strings.Join(known, ", ")))
		k.check(slices.Contains(known, b) && k.config.SSH != nil, at, at,
			fmt.Sprintf("ssh runs %s on hosts: remove it here, or remove ssh", b))
	}
}

// conflicts checks the section of one tenant.
func (t *tenantConfig) conflicts(name string, check forge.Check, kinds []forge.Kind) {
	at := "tenants." + name
	field := "tenants." + name + "."
	ssh := strings.HasPrefix(t.URL, "ssh://")
	check(!t.AllowHTTP && isPlainHTTP(t.URL), field+"url", field+"url", httpNote)
	check(hasCredentials(t.URL), field+"url", field+"url", credentialsNote)
	check(isPage(t.URL, kinds), field+"url", field+"url", pageNote)
	check(!isRemote(t.URL), field+"url", field+"url", remoteNote)
	sshConflicts(check, at, field, ssh, t.SSHKey, t.KnownHosts, "read there")
	check(ssh && t.Token != nil, at, field+"token", "it is for https:// URLs: take it out")
}

const httpNote = "plain HTTP to another machine shows the token to the network: use https, or set allow_http where the network is closed"

// isPlainHTTP reports whether a URL is of plain HTTP to another machine.
func isPlainHTTP(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Scheme == "http" && !schema.IsLoopback(u.Hostname())
}

// credentialsNote does not repeat the URL, which may contain a password.
const credentialsNote = "the URL holds a user or password, or cannot be read: write https://HOST/PATH or ssh://USER@HOST/PATH, and add " +
	"token: {file: /PATH}"

// hasCredentials reports whether a URL contains a password, or a user that is not for
// SSH. An unreadable URL may contain one.
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
