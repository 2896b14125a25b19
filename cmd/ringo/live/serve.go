package live

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// every is how often clients are told what is new.
	every = 500 * time.Millisecond
	// maxConns bounds open connections, maxViewers those of them that are told what is new.
	maxConns, maxViewers = 64, 16
	// patience is how long a client may take to read an answer.
	patience = 5 * time.Second
	// lastWords is how long the clients have to read how the job ended.
	lastWords = 500 * time.Millisecond
)

//go:embed page.html page.css page.js
var files embed.FS

// types are the files of the page.
var types = map[string]string{"page.html": "text/html; charset=utf-8", "page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}

// Server shows a job. It is a launch.Watcher.
type Server struct {
	*state
	token string
	names []string // that a request may call this host by, besides addresses
	l     net.Listener
	http  *http.Server
	over  chan struct{} // closed when the job is

	viewers chan struct{} // a token for each
	cache   struct {
		sync.Mutex
		text    []byte
		version int
		at      time.Time
	}
}

// Address completes ADDR of -serve: a port, or host:port. Without a host it is loopback.
func Address(addr string) (string, error) {
	full := addr
	if _, err := strconv.Atoi(addr); err == nil {
		full = ":" + addr
	}
	host, port, err := net.SplitHostPort(full)
	n, wrong := strconv.Atoi(port)
	if err != nil || wrong != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q is no port and no host:port", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// Listen starts to serve at an address of Address. The program is the one to name on the page.
func Listen(addr, program string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve at %s: %w", addr, reason(err))
	}
	host, _, _ := net.SplitHostPort(addr)
	return newServer(l, host, program), nil
}

// newServer serves on l, which may be called host.
func newServer(l net.Listener, host, program string) *Server {
	self, _ := os.Hostname() // without a name it is reached by address
	s := &Server{state: newState(program), token: rand.Text(), names: []string{"localhost", host, self}, l: &limited{Listener: l, free: make(chan struct{}, maxConns)},
		over: make(chan struct{}), viewers: make(chan struct{}, maxViewers)}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go func() { _ = s.http.Serve(s.l) }() // ends with Close
	return s
}

// reason returns what is wrong with an address, without the address.
func reason(err error) error {
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		return e.Err
	}
	return err
}

// URL is where the page is. Who knows it may look.
func (s *Server) URL() string {
	addr := s.l.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = s.names[len(s.names)-1]
	}
	return fmt.Sprintf("http://%s/%s/", net.JoinHostPort(host, strconv.Itoa(addr.Port)), s.token)
}

// Close shows how the job ended to those who look, and stops.
func (s *Server) Close(result error) {
	s.finish(result)
	close(s.over)
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if s.http.Shutdown(ctx) != nil { // a client that does not read
		_ = s.http.Close()
	}
}

// ServeHTTP answers only requests that have the token, and that name this host by an address or one of its names. A page of another site
// cannot do so, even if its name resolves to this host (DNS rebinding).
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	token, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 || !s.known(r.Host) {
		http.Error(w, "This is the page of a job of ringo run. Open the address that ringo printed.", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	// Some writers have no deadline; those of http.Server do.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	switch what {
	case "state":
		s.serveState(w)
	case "events":
		s.serveEvents(w, r)
	case "":
		serveFile(w, "page.html")
	default:
		serveFile(w, what)
	}
}

// known tells whether a Host header means this host: by an address, or a name that it has.
func (s *Server) known(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	for _, name := range s.names {
		if name != "" && strings.EqualFold(host, name) {
			return true
		}
	}
	return false
}

func serveFile(w http.ResponseWriter, name string) {
	text, err := files.ReadFile(name)
	if err != nil {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", types[name])
	_, _ = w.Write(text)
}

// latest returns what is known of the job, as JSON, at most `every` old, and a number that grows with it.
func (s *Server) latest() ([]byte, int, error) {
	c := &s.cache
	c.Lock()
	defer c.Unlock()
	select {
	case <-s.over:
	default:
		if time.Since(c.at) < every {
			return c.text, c.version, nil
		}
	}
	text, version, err := s.encode()
	if err == nil {
		c.text, c.version, c.at = text, version, time.Now()
	}
	return text, version, err
}

func (s *Server) serveState(w http.ResponseWriter) {
	text, _, err := s.latest()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// serveEvents tells a client what is new of the job, and of the lines of the rank that it asks for, until it goes, the job is
// over, or it is too slow.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case s.viewers <- struct{}{}:
		defer func() { <-s.viewers }()
	default:
		http.Error(w, fmt.Sprintf("%d others look already", maxViewers), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(every)
	defer tick.Stop()
	rank, _ := strconv.Atoi(r.URL.Query().Get("rank")) // 0 is as good as any
	e := events{w: w, version: -1}
	for over := false; e.send(s, rank) == nil && !over; {
		select {
		case <-tick.C:
		case <-s.over:
			over = true
		case <-r.Context().Done():
			return
		}
	}
}

// events is what a client was told.
type events struct {
	w       http.ResponseWriter
	version int
	lines   []byte
}

// send tells what is new.
func (e *events) send(s *Server, rank int) error {
	text, version, err := s.latest()
	if err != nil || version == e.version {
		return err
	}
	lines, err := json.Marshal(s.tail(rank))
	if err != nil {
		return err
	}
	control := http.NewResponseController(e.w)
	_ = control.SetWriteDeadline(time.Now().Add(patience)) // as in ServeHTTP
	if !bytes.Equal(lines, e.lines) {
		fmt.Fprintf(e.w, "event: lines\ndata: %s\n\n", lines) // an error shows in Flush
	}
	fmt.Fprintf(e.w, "event: state\ndata: %s\n\n", text)
	e.version, e.lines = version, lines
	return control.Flush()
}

// limited refuses connections when there are as many as it may have.
type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: conn, end: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			conn.Close()
		}
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	end func()
}

func (c *counted) Close() error {
	c.end()
	return c.Conn.Close()
}
