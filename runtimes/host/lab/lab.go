package lab

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"berth/schema"
)

//go:embed init.sh
var initScript string

// DefaultUser is the login account of Berth.
const DefaultUser = "berth"

// Node is a host of a lab.
type Node struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`           // IPv4; all hosts of a lab are in one /24
	Devices []string `json:"devices,omitempty"` // character devices directly in /dev
	// CPUs and MemoryMiB are declared for the host; 0: nothing is. A host has what the
	// machine has, so Up refuses more.
	CPUs      int `json:"cpus,omitempty"`
	MemoryMiB int `json:"memory_mib,omitempty"`
}

// NodeOf returns the host of a Node document, with its GPUs.
func NodeOf(name string, spec schema.NodeSpec) Node {
	n := Node{Name: name, Address: spec.Address, CPUs: spec.Capacity.CPUs, MemoryMiB: spec.Capacity.MemoryMiB}
	for _, g := range spec.Capacity.GPUs {
		n.Devices = append(n.Devices, expand(g.Devices)...)
	}
	return n
}

var ranged = regexp.MustCompile(`^(.*)\[(\d+)-(\d+)\]$`)

// expand expands a range such as /dev/nvidia[0-2].
func expand(devices string) []string {
	m := ranged.FindStringSubmatch(devices)
	if m == nil {
		return []string{devices}
	}
	from, _ := strconv.Atoi(m[2])
	to, _ := strconv.Atoi(m[3])
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, m[1]+strconv.Itoa(i))
	}
	return out
}

// Config configures a lab.
type Config struct {
	Dir    string // for keys and host list; Up makes it and Down removes it
	Helper string // the berth-host binary, which hosts get a copy of
	Nodes  []Node
	// Image is the Debian suite of the hosts' root filesystem, for which BuildImage is
	// called with Images ("": DefaultImages) and Packages. "": the root of this machine.
	Image, Images string
	Packages      []string
	// Machines makes each host an emulated machine with an init, systemd, and a disk that
	// a reboot keeps, instead of namespaces. Image "": the first of Suites.
	Machines bool
	// Unprepared machines are as installed: without Berth's account and helper, and without
	// the device files.
	Unprepared bool
	// Auto moves the hosts to an unused /24 and keeps the last number of each address.
	Auto bool
	Log  *slog.Logger
}

// Lab is a running lab. It outlives the process that made it.
type Lab struct {
	Dir    string `json:"dir"`
	Bridge string `json:"bridge"`
	Image  string `json:"image,omitempty"` // Debian suite; "": the machine's own system
	Lower  string `json:"lower"`           // first content of a host's root filesystem: a directory, or the image of Machines
	Nodes  []Node `json:"nodes"`           // by name, with their actual addresses
	// Machines: its hosts are emulated machines.
	Machines bool `json:"machines,omitempty"`
	// Unprepared: as in Config.
	Unprepared bool `json:"unprepared,omitempty"`
}

// User returns the login account of Berth.
func (l *Lab) User() string { return DefaultUser }

// KeyFile is the private key of User, which can only start berth-host.
func (l *Lab) KeyFile() string { return filepath.Join(l.Dir, "id_ed25519") }

// LoginKeyFile is the private key of root, for people.
func (l *Lab) LoginKeyFile() string { return filepath.Join(l.Dir, "login_ed25519") }

// KnownHosts is a known_hosts file with every host's key.
func (l *Lab) KnownHosts() string { return filepath.Join(l.Dir, "known_hosts") }

// Node returns the host of a name.
func (l *Lab) Node(name string) (Node, bool) {
	i := slices.IndexFunc(l.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return l.Nodes[i], true
}

var (
	deviceShape = regexp.MustCompile(`^/dev/[A-Za-z][A-Za-z0-9_-]{0,40}$`)
)

// Up makes a lab and replaces one in the same directory. If it fails, it removes what
// it made. It needs root.
func Up(ctx context.Context, c Config) (l *Lab, err error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	sum := sha256.Sum256([]byte(c.Dir))
	l = &Lab{Dir: c.Dir, Bridge: "bl" + hex.EncodeToString(sum[:])[:8], Image: c.Image, Machines: c.Machines, Unprepared: c.Unprepared,
		Nodes: slices.Clone(c.Nodes)}
	slices.SortFunc(l.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	if old, err := Open(c.Dir); err == nil {
		// Remove the existing or incomplete lab first.
		if err := old.Down(ctx); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(c.Dir)
	foreign := func(e os.DirEntry) bool { return e.Name() != newRecord } // of a process that was killed
	if err == nil && slices.ContainsFunc(entries, foreign) {
		return nil, fmt.Errorf("lab: %s is not empty and has no lab; name a new directory with --dir", c.Dir)
	}
	if l.Image == "" && l.Machines {
		l.Image = Suites()[0]
	}
	if err := l.system(ctx, c); err != nil { // before the hosts, as it may take minutes
		return nil, fmt.Errorf("lab: %w", err)
	}
	made := l
	defer func() {
		if err != nil {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			err = errors.Join(err, made.Down(clean))
		}
	}()
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := l.save(); err != nil { // first, so that Down finds the lab
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, "hosts"), 0o755); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := l.network(ctx, c.Auto); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := l.files(c.Helper); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := l.save(); err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8 * runtime.NumCPU()) // so that each of many hosts boots in time
	for i, n := range l.Nodes {
		g.Go(func() error {
			if err := l.boot(ctx, i, n); err != nil {
				return fmt.Errorf("lab: host %s: %w", n.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if c.Log != nil {
		c.Log.Debug("lab is up", "dir", l.Dir, "hosts", len(l.Nodes), "bridge", l.Bridge)
	}
	return l, nil
}

// system builds the image of the hosts if it is not there.
func (l *Lab) system(ctx context.Context, c Config) error {
	images := cmp.Or(c.Images, DefaultImages)
	switch {
	case l.Machines:
		image, err := BuildMachineImage(ctx, images, l.Image, c.Packages, c.Log)
		l.Lower = image.dir
		return err
	case l.Image != "":
		image, err := BuildImage(ctx, images, l.Image, c.Packages, c.Log)
		l.Lower = image.root()
		return err
	}
	l.Lower = "/"
	return nil
}

func (c Config) check() error {
	if err := prerequisites(); err != nil {
		return err
	}
	if c.Machines {
		if err := checkMachines(c.Nodes); err != nil {
			return err
		}
	}
	if err := checkDir(c.Dir); err != nil {
		return err
	}
	if len(c.Nodes) == 0 || len(c.Nodes) > 200 {
		return fmt.Errorf("%d hosts: want 1 to 200", len(c.Nodes))
	}
	if _, err := os.Stat(c.Helper); err != nil {
		return fmt.Errorf("the helper: %w; build it with `make build`", err)
	}
	if err := fit(c.Nodes); err != nil {
		return err
	}
	seen := map[string]bool{}
	var subnet netip.Prefix
	for _, n := range c.Nodes {
		a, err := netip.ParseAddr(n.Address)
		switch {
		case !schema.ValidNodeName(n.Name):
			return fmt.Errorf("host name %q: want letters, digits, and -, _ or . between them", n.Name)
		case err != nil || !a.Is4():
			return fmt.Errorf("host %s: address %q is not an IPv4 address", n.Name, n.Address)
		case seen[n.Name] || seen[n.Address]:
			return fmt.Errorf("host %s (%s) is listed twice", n.Name, n.Address)
		case a.As4()[3] < 2 || a.As4()[3] == 255:
			return fmt.Errorf("host %s: address %s is reserved; use .2 to .254", n.Name, n.Address)
		case subnet.IsValid() && !subnet.Contains(a):
			return fmt.Errorf("host %s: %s is not in %s like the other hosts", n.Name, n.Address, subnet)
		}
		subnet, _ = a.Prefix(24)
		seen[n.Name], seen[n.Address] = true, true
		for _, d := range n.Devices {
			if !deviceShape.MatchString(d) {
				return fmt.Errorf("host %s: device %q: want a name directly in /dev", n.Name, d)
			}
		}
	}
	return nil
}

// checkDir refuses a path that the options of an overlay mount cannot have.
func checkDir(dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, " \t\n,:\\") {
		return fmt.Errorf("directory %q: want an absolute path without blanks, commas and colons", dir)
	}
	return nil
}

// Open returns the lab in dir, which may be incomplete.
func Open(dir string) (*Lab, error) {
	data, err := os.ReadFile(filepath.Join(dir, "lab.json"))
	if err != nil {
		return nil, fmt.Errorf("no lab in %s: %w", dir, err)
	}
	var l Lab
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("lab in %s: %w", dir, err)
	}
	l.Dir = dir
	return &l, nil
}

// newRecord is the record of a lab while save writes it.
const newRecord = "lab.json.new"

func (l *Lab) save() error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	written := filepath.Join(l.Dir, newRecord)
	if err := os.WriteFile(written, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(written, filepath.Join(l.Dir, "lab.json"))
}

// kernelFilesystems are the lines of a host's fstab(5), besides those of the control
// groups: in the namespaces of a host, /sys has its network, and the root of each
// control group hierarchy is the host's group.
const kernelFilesystems = `tmpfs /tmp tmpfs mode=1777 0 0
sysfs /sys sysfs rw 0 0
tmpfs /sys/fs/cgroup tmpfs mode=755 0 0
tmpfs /dev tmpfs mode=755 0 0
devpts /dev/pts devpts X-mount.mkdir,newinstance,ptmxmode=0666,mode=620 0 0
tmpfs /dev/shm tmpfs X-mount.mkdir,mode=1777 0 0
`

// files writes the files that hosts copy: keys, host list, helper.
func (l *Lab) files(helper string) error {
	write := func(name, text string, mode os.FileMode) error {
		return os.WriteFile(filepath.Join(l.Dir, name), []byte(text), mode)
	}
	hosts := "127.0.0.1 localhost\n"
	for _, n := range l.Nodes {
		hosts += n.Address + " " + n.Name + "\n"
	}
	known := ""
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	fstab := kernelFilesystems
	for _, h := range mounts {
		fstab += h.kind + " " + h.dir + " " + h.kind + " X-mount.mkdir," + h.options + " 0 0\n"
	}
	for _, n := range l.Nodes {
		dir := filepath.Join("hosts", n.Name)
		if err := os.MkdirAll(filepath.Join(l.Dir, dir, "disk"), 0o755); err != nil {
			return err
		}
		private, public, err := newKey("lab host " + n.Name)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, "ssh_host_ed25519_key"), private, 0o600); err != nil {
			return err
		}
		known += n.Address + " " + public + "\n" + n.Name + " " + public + "\n"
	}
	private, public, err := newKey("berth")
	if err != nil {
		return err
	}
	login, loginPublic, err := newKey("login")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(helper)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(data)
	return errors.Join(
		write("hosts.txt", hosts, 0o644),
		write("fstab", fstab, 0o644),
		write("known_hosts", known, 0o644),
		write("id_ed25519", private, 0o600),
		write("login_ed25519", login, 0o600),
		write("login_keys", loginPublic+"\n", 0o644),
		write("authorized_keys", `restrict,command="sudo -n /usr/local/sbin/berth-host" `+public+"\n", 0o644),
		write("init.sh", initScript, 0o755),
		write("berth-host", string(data), 0o755),
		write("berth-host.sha256", hex.EncodeToString(digest[:])+"\n", 0o644),
	)
}

func newKey(comment string) (private, public string, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", err
	}
	block, err := ssh.MarshalPrivateKey(priv, comment)
	if err != nil {
		return "", "", err
	}
	key, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), nil
}

// boot starts a host and waits until its sshd answers.
func (l *Lab) boot(ctx context.Context, index int, n Node) error {
	if l.Machines {
		return machine{l, n, index}.boot(ctx)
	}
	log, err := os.Create(filepath.Join(l.Dir, "hosts", n.Name, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	if err := l.controlGroups().make(n.Name); err != nil {
		return err
	}
	args := append(namespaces(), "bash", filepath.Join(l.Dir, "init.sh"), l.Dir, n.Name, n.Address, "24", DefaultUser, l.Lower)
	if args, err = l.controlGroups().start(n.Name, append(args, n.Devices...)...); err != nil {
		return err
	}
	// Without ctx and in a new session, as the host outlives this process.
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its output is in the log
		close(ended)
	}()
	deadline := time.Now().Add(30 * time.Second)
	linked := false
	for {
		if !linked {
			if pid := firstOf(cmd.Process.Pid); pid > 0 {
				if err := l.bridge().link(ctx, l.bridge().cable(index), n, pid); err != nil {
					return err
				}
				linked = true
			}
		} else if hasLine(log.Name(), "up") && answers(n.Address, time.Second) {
			// Only after "up": an unanswered ARP request takes a second.
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the first process ended: %s", tail(log.Name()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("sshd does not answer at %s: %s", n.Address, tail(log.Name()))
		}
	}
}

// hasLine reports whether a line of the file is the word.
func hasLine(file, word string) bool {
	data, err := os.ReadFile(file)
	return err == nil && strings.Contains("\n"+string(data), "\n"+word+"\n")
}

// answers reports whether an sshd listens at the address. patience: for its greeting.
func answers(address string, patience time.Duration) bool {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(address, "22"), 200*time.Millisecond)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience)) // a failure shows in the read
	greeting := make([]byte, 4)
	_, err = io.ReadFull(c, greeting)
	return err == nil && string(greeting) == "SSH-"
}

func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-500):]))
}

func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
	}
	return nil
}
