package daemon

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"berth/reconciler/gitrepo"
	"berth/schema"
)

// warningCheck finds valid values of a configuration that are probably mistakes, a section at a time.
type warningCheck struct{ config *Config }

// warnings returns findings that do not stop the daemon and that an operator should read. path is that of the
// file.
func (c *Config) warnings(path string) []string {
	w := warningCheck{c}
	out := w.artifacts()
	out = append(out, w.repository()...)
	out = append(out, w.directories(path)...)
	if c.Forge != nil {
		out = append(out, c.Forge.Warnings(c.Repository.URL, c.Repository.Token != nil)...)
	}
	out = append(out, w.files()...)
	out = append(out, w.authority()...)
	out = append(out, w.ranges()...)
	out = append(out, w.sharedSecrets()...)
	out = append(out, w.repeated()...)
	if c.SSH != nil && c.SSH.User == "root" {
		out = append(out, "ssh.user: the key gives a root shell on each node: use a user that may only run berth-host by sudo, such "+
			"as berth (deploy/hosts.md)")
	}
	if c.SSH == nil && c.MemoryRuntime == nil {
		out = append(out, "there is neither ssh nor memory_runtime: Berth checks changes and deploys nothing; add ssh to reach the hosts")
	}
	if _, port, err := net.SplitHostPort(c.address()); err == nil && port == "0" {
		out = append(out, "listen: port 0 changes at each start, so webhooks and clients cannot find it: choose a port")
	}
	host, _, err := net.SplitHostPort(c.address())
	if why := noAddress(host); why != nil {
		out = append(out, fmt.Sprintf("listen: %s is no address of this machine now (%v): write one, such as 127.0.0.1, or leave it out "+
			"to listen on all", host, why))
	} else if err == nil && c.TLS == nil && !schema.IsLoopback(host) {
		out = append(out, "listen: "+c.address()+
			" takes requests of other machines without TLS, so the network can read tokens: add tls, or let a reverse proxy end TLS and "+
			"listen on 127.0.0.1")
	}
	return out
}

// artifacts returns warnings about directories that are not there, and about sources that may reach, or show, too much.
func (w warningCheck) artifacts() []string {
	a := w.config.Artifacts
	out := w.artifactDirectories()
	for i, text := range a.Addresses {
		if all, err := netip.ParsePrefix(text); err == nil && all.Bits() == 0 {
			out = append(out, fmt.Sprintf("artifacts.addresses[%d]: %s allows every address, so a source of any tenant reaches this "+
				"machine and its "+
				"metadata service: write the addresses of the registries", i, text))
		}
	}
	for i, host := range a.PlainHTTP {
		for _, name := range slices.Sorted(maps.Keys(a.Secrets)) {
			if slices.Contains(a.Secrets[name].Hosts, host) {
				out = append(out, fmt.Sprintf("artifacts.plain_http[%d]: %s gets the secret %s without encryption, so the network can "+
					"read it: use "+
					"https there, or take the host out of artifacts.secrets.%s.hosts", i, host, name, name))
			}
		}
	}
	return out
}

// noAddress returns why nothing can listen at a host of this machine, or nil.
func noAddress(host string) error {
	var of net.ListenConfig
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // of a resolver that does not answer
	defer cancel()
	l, err := of.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	return l.Close()
}

// artifactDirectories returns warnings about directories of artifacts that are not there, or that hold a secret.
func (w warningCheck) artifactDirectories() (out []string) {
	secrets, files := w.config.references()
	for field, s := range secrets {
		files[field] = s.File
	}
	maps.DeleteFunc(files, func(field, file string) bool { // some are public
		return file == "" || strings.HasSuffix(field, "known_hosts") || strings.HasSuffix(field, "cert")
	})
	for i, dir := range w.config.Artifacts.Directories {
		field := fmt.Sprintf("artifacts.directories[%d]", i)
		if info, err := os.Stat(dir); err != nil {
			out = append(out, fmt.Sprintf("%s: %v", field, err))
		} else if !info.IsDir() {
			out = append(out, fmt.Sprintf("%s: %s is not a directory", field, dir))
		}
		for secret, file := range schema.Sorted(files) {
			if within(dir, file) {
				out = append(out, fmt.Sprintf("%s: %s holds the file of %s (%s), and an artifact could read it: name a directory that "+
					"holds artifacts only", field, dir, secret, file))
				break
			}
		}
	}
	return out
}

// repository returns warnings about repositories that are one, or lack the branch.
func (w warningCheck) repository() (out []string) {
	r := w.config.Repository
	if r.StatusURL != "" && sameRepository(r.StatusURL, r.URL) {
		out = append(out, "repository.status_url: is that of repository.url: take it out")
	}
	if short := strings.TrimPrefix(r.Branch, "origin/"); short != r.Branch {
		out = append(out, "repository.branch: the branch of the repository itself is meant, not that of a clone: write "+short)
	}
	out = append(out, w.tenantRepositories()...)
	dir, isLocal := w.config.LocalRepository()
	if !isLocal {
		return append(out, w.remote()...)
	}
	return append(out, w.localRepository(dir)...)
}

// tenantRepositories returns warnings about tenants whose repository is another one of the configuration.
func (w warningCheck) tenantRepositories() (out []string) {
	names := slices.Sorted(maps.Keys(w.config.Tenants))
	for i, name := range names {
		for _, other := range names[:i] {
			if sameRepository(w.config.Tenants[name].URL, w.config.Tenants[other].URL) {
				out = append(out,
					fmt.Sprintf("tenants.%s.url: is the repository of tenant %s, too: a tenant listed here has one of its own", name,
						other))
			}
		}
		if sameRepository(w.config.Tenants[name].URL, w.config.Repository.URL) {
			out = append(out, fmt.Sprintf("tenants.%s.url: is the repository of the estate: a tenant listed here has one of its own", name))
		}
	}
	return out
}

// localRepository returns warnings about a repository in a directory of this machine.
func (w warningCheck) localRepository(dir string) (out []string) {
	if _, err := os.Stat(dir); err != nil {
		return []string{fmt.Sprintf("repository.url: %v", err)}
	}
	for field, path := range schema.Sorted(w.config.ownDirectories()) {
		within, err := filepath.Rel(dir, path)
		if first, _, _ := strings.Cut(filepath.ToSlash(within), "/"); err == nil && (first == "platform" || first == "tenants") {
			out = append(out, fmt.Sprintf("%s: Berth would write its files among the documents in %s/: choose a directory of its own, "+
				"such as .berth/cache", field, first))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
			return append(out, fmt.Sprintf("repository.url: %s is a directory within a repository: write that of the repository", dir))
		}
	}
	repo, err := gitrepo.OpenLocal(dir)
	if err != nil {
		return append(out, fmt.Sprintf("repository.url: %v", err))
	}
	if _, err := repo.Resolve(context.Background(), "refs/heads/"+cmp.Or(w.config.Repository.Branch, "main")); err != nil {
		out = append(out, fmt.Sprintf("repository.branch: %v", err))
	}
	return append(out, problems(repo.Close())...)
}

// remote returns warnings about a repository on another machine to which Berth cannot push.
func (w warningCheck) remote() (out []string) {
	if r := w.config.Repository; strings.HasPrefix(r.URL, "https://") && r.Token == nil && w.config.Forge == nil {
		out = append(out, "repository.token: missing: Berth pushes berth/status and berth/in-force, which a forge does not take without "+
			"a credential")
	}
	return out
}

// files returns warnings about keys that others can read, and a file of host keys that pins no host.
func (w warningCheck) files() (out []string) {
	_, files := w.config.references()
	for _, field := range slices.Sorted(maps.Keys(files)) {
		name := field[strings.LastIndex(field, ".")+1:]
		if name == "known_hosts" {
			data, err := os.ReadFile(files[field])
			switch _, _, _, _, _, wrong := ssh.ParseKnownHosts(data); {
			case err != nil: // said elsewhere
			case len(bytes.TrimSpace(data)) == 0:
				out = append(out, field+": the file is empty, so no host is trusted: add the key of each, as ssh-keyscan prints it and "+
					"you have checked it")
			case wrong != nil:
				out = append(out, fmt.Sprintf("%s: the file pins no host: it takes the lines that ssh-keyscan prints (%v)", field, wrong))
			}
			continue
		}
		others := os.FileMode(0o077)
		if field == "tls.key" { // Debian gives those to the group ssl-cert
			others = 0o007
		}
		if info, err := os.Stat(files[field]); err == nil && name != "cert" && info.Mode().Perm()&others != 0 {
			out = append(out, fmt.Sprintf("%s: other users of this machine can read the key (mode %04o): chmod 0400 %s", field,
				info.Mode().Perm(), files[field]))
		}
	}
	return out
}

func problems(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}
