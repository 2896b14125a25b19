//go:build linux || darwin

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// browser is a Chromium without a window. It gets commands over a pipe (DevTools protocol).
type browser struct {
	t      *testing.T
	to     io.Writer
	from   *bufio.Reader
	id     int
	page   string   // session of the page
	faults []string // exceptions of scripts, and requests that a policy blocked
}

// fromBrowser is an answer, or an event.
type fromBrowser struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// startBrowser starts Chromium, or skips the test.
func startBrowser(t *testing.T) *browser {
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium, which is not installed (Debian: apt install chromium)")
	}
	hears, tells, err := os.Pipe()
	require.NoError(t, err)
	answers, says, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--window-size=1240,1300", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{hears, says}
	require.NoError(t, cmd.Start())
	require.NoError(t, hears.Close())
	require.NoError(t, says.Close())
	b := &browser{t: t, to: tells, from: bufio.NewReader(answers)}
	t.Cleanup(func() {
		b.do("Browser.close", nil, nil)
		_, _ = io.Copy(io.Discard, b.from)
		_ = cmd.Wait() // an error means that it was killed
		tells.Close()
		answers.Close()
	})
	var target struct{ TargetID, SessionID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.page = target.SessionID
	for _, what := range []string{"Page", "Runtime", "Log"} {
		b.do(what+".enable", nil, nil)
	}
	return b
}

// do sends the browser a command, and reads the result.
func (b *browser) do(method string, params map[string]any, result any) {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method, "params": params}
	if b.page != "" && !strings.HasPrefix(method, "Browser.") {
		m["sessionId"] = b.page
	}
	text, err := json.Marshal(m)
	require.NoError(b.t, err)
	_, err = b.to.Write(append(text, 0))
	require.NoError(b.t, err)
	for {
		text, err := b.from.ReadBytes(0)
		require.NoError(b.t, err, "the browser is gone")
		var m fromBrowser
		require.NoError(b.t, json.Unmarshal(text[:len(text)-1], &m))
		if m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded" {
			b.faults = append(b.faults, string(m.Params))
		}
		if m.ID != b.id {
			continue
		}
		require.Empty(b.t, string(m.Error), method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(m.Result, result))
		}
		return
	}
}

// eval returns the value of an expression, as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &got)
	require.Empty(b.t, string(got.ExceptionDetails), expression)
	return fmt.Sprint(got.Result.Value)
}

// await waits for a condition in the page.
func (b *browser) await(condition string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.eval(condition) == "true" }, 5*time.Minute, 20*time.Millisecond, condition)
}

// text returns the text of an element of the page.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return b.eval(fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.textContent).join('|')", selector))
}

// picture takes a screenshot in a colour scheme, and returns how many of its pixels have each colour.
func (b *browser) picture(scheme string) map[color.RGBA]int {
	b.t.Helper()
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	var got struct{ Data []byte }
	b.do("Page.captureScreenshot", nil, &got)
	pic, err := png.Decode(bytes.NewReader(got.Data))
	require.NoError(b.t, err)
	colors := map[color.RGBA]int{}
	for y := range pic.Bounds().Dy() {
		for x := range pic.Bounds().Dx() {
			colors[color.RGBAModel.Convert(pic.At(x, y)).(color.RGBA)]++
		}
	}
	return colors
}

// TestLongBrowser opens the page of a job in a real browser: while the job runs, after a rank is chosen, and when it is over.
func TestLongBrowser(t *testing.T) {
	reliability.SkipUnlessLong(t)
	b := startBrowser(t)
	first, gate := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "go")
	j := startServed(t, "-n", "3", "-threads", "1", "-timeout", "20s", program(t, "watched"), "400", "-1", "100", first, "350", gate)
	b.do("Page.navigate", map[string]any{"url": j.url}, nil)
	// A report with all steps in it would be a rate with one point, and no curve.
	b.await(`document.getElementById('facts') && document.getElementById('facts').textContent.startsWith('3 ranks · step 100 of 400 · ')`)
	require.NoError(t, os.WriteFile(first, nil, 0o600))
	b.await(`document.getElementById('facts') && document.getElementById('facts').textContent.startsWith('3 ranks · step 350 of 400 · ')`)
	// all ranks have reported
	b.await(`[...document.querySelectorAll('#comm tr')].some((row) => row.textContent.startsWith('allreduce1,0504.01 MiB'))`)
	assert.Equal(t, "watched|running", b.text("#program, #state"))
	assert.Regexp(t, `^loss\w*[\d.]+\|steps/s\w*[\d.]+$`, b.text(".charts h2"))
	assert.Equal(t, "2", b.eval("[...document.querySelectorAll('.charts path.curve')].filter((p) => p.getAttribute('d').length > 20).length"))
	assert.Regexp(t, `^rank 0.*at most [\d.]+ \w+\|rank 1.*at most`, b.text("#memory .bar"))
	assert.Equal(t, "true", b.eval("document.querySelector('#memory .k1').getBoundingClientRect().width > 10"))
	assert.Equal(t, "256", b.eval("document.querySelectorAll('#slow circle').length"))
	assert.Regexp(t, `^1([5-9]\d|100) %[\d.]+ ms[\d.]+ msrunning$`, b.text("#ranks tbody tr:nth-child(2)"))
	// a slow job prints how far it is, too, and its two streams may come in another order
	b.await(`document.getElementById('lines').textContent.split('\n').includes('<i>rank 0 of generation 1</i>')`)
	assert.Equal(t, "0", b.eval("document.querySelectorAll('#lines *').length"))

	light, dark := b.picture("light"), b.picture("dark")
	for _, p := range []struct {
		colors              map[color.RGBA]int
		page, accent, other color.RGBA
	}{
		{light, color.RGBA{0xf6, 0xf8, 0xfa, 255}, color.RGBA{0x2a, 0x78, 0xd6, 255}, color.RGBA{0xeb, 0x68, 0x34, 255}},
		{dark, color.RGBA{0x0d, 0x11, 0x17, 255}, color.RGBA{0x39, 0x87, 0xe5, 255}, color.RGBA{0xd9, 0x59, 0x26, 255}},
	} {
		assert.Greater(t, p.colors[p.page], 100_000, "background")
		assert.Greater(t, p.colors[p.accent], 300, "curves and dots")
		assert.Greater(t, p.colors[p.other], 300, "bars of memory")
	}

	b.eval("document.getElementById('rank').value = 2; document.getElementById('rank').dispatchEvent(new Event('change'))")
	b.await("document.getElementById('lines').textContent === '<i>rank 2 of generation 1</i>'")
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.Equal(t, 0, j.end(), j.stderr.String())
	b.await("document.getElementById('notice').textContent === 'The job is over. This is its last state.'")
	assert.Equal(t, "ended", b.text("#state"))
	assert.Contains(t, b.text("#facts"), "3 ranks · step 400 of 400 · ")
	assert.Equal(t, "ended|ended|ended", b.text("#ranks tbody td:last-child"))
	assert.Empty(t, b.faults)
}
