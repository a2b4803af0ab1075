"""The texts of a canary where nobody gives any: short, long, in several languages and scripts, code, numbers."""

from __future__ import annotations

__all__ = ["PROBES"]

_LONG = (
    "The ferry to the northern islands leaves twice a day in summer and once in winter, weather permitting. "
    "Tickets are sold at the harbour office until ten minutes before departure, and on board if there is room. "
    "Bicycles travel free of charge; cars have to be announced the day before. When the wind is stronger than "
    "eight the crossing is cancelled, and passengers may choose between a refund and a bed in the seamen's "
    "hostel, where breakfast is served from six."
)
_LONGER = (
    "Our bakery opened in a former stable in the autumn of a wet year. The first oven was built of bricks that "
    "we carried from a demolished chimney, and it leaned so much that the loaves came out thicker on one side. "
    "Customers liked that. They called it the tilted loaf and asked for it by name, even after we had bought a "
    "proper oven from a school kitchen. We tried to explain that the new bread was the better one: the crust was "
    "even, the crumb was lighter, and it kept for three days. It did not help. In the end we put a wedge under "
    "the new oven, on the left, and the queue came back. Since then we have learned to write down every change: "
    "the flour, the water, the time of rising, the height of the wedge. Whoever wants to know why the bread of a "
    "certain Tuesday was good can look it up in a green notebook."
)
_WORDS = (
    "water",
    "Refund",
    "volcano",
    "justice",
    "hello",
    "?",
    "7",
)
_ENGLISH = (
    "How do I reset my password?",
    "I forgot my password and cannot log in any more.",
    "The invoice was paid twice; please send one payment back.",
    "Where can I download last year's invoices?",
    "A cat sleeps on the warm roof of a parked car.",
    "A dog barks at the postman behind the garden gate.",
    "The central bank left its interest rate unchanged.",
    "Shares fell after the company lowered its forecast.",
    "Add two eggs to the flour and stir until the dough is smooth.",
    "Simmer the lentils for half an hour with a bay leaf.",
    "The patient reports pain in the left knee after running.",
    "Take one tablet in the morning with a glass of water.",
    "Mars has two small moons, and neither of them is round.",
    "Light from that galaxy was on its way for nine billion years.",
    "The tenant must give notice three months before moving out.",
    "This agreement is governed by the law of the buyer's country.",
    "She scored twice in the last five minutes of the match.",
    "The marathon was won in a little over two hours and six minutes.",
    "The train to the airport leaves from platform four.",
    "There is no train to the airport today.",
    "I loved every minute of this film.",
    "I hated every minute of this film.",
    "Nobody knows who built the stone circle on the hill.",
    "Moss grows on the side of the trunk that stays wet.",
)
_LANGUAGES = (
    "Wie setze ich mein Passwort zurück?",
    "Der Zug zum Flughafen fährt von Gleis vier.",
    "Die Katze schläft auf dem warmen Autodach.",
    "Comment puis-je réinitialiser mon mot de passe ?",
    "La banque centrale n'a pas modifié son taux directeur.",
    "¿Dónde puedo descargar las facturas del año pasado?",
    "El paciente tiene dolor en la rodilla izquierda.",
    "Il gatto dorme sul tetto caldo dell'auto.",
    "O trem para o aeroporto parte da plataforma quatro.",
    "Pociąg na lotnisko odjeżdża z peronu czwartego.",
    "Tren dördüncü perondan kalkıyor.",
    "Как мне сменить пароль?",
    "Кошка спит на тёплой крыше машины.",
    "如何重置我的密码？",
    "猫在温暖的车顶上睡觉。",
    "パスワードを再設定するにはどうすればいいですか。",
    "비밀번호를 어떻게 재설정하나요?",
    "كيف يمكنني إعادة تعيين كلمة المرور؟",
    "मैं अपना पासवर्ड कैसे बदलूँ?",
)
_OTHERS = (
    "def area(radius):\n    return 3.14159 * radius ** 2",
    "for (let i = 0; i < rows.length; i++) { total += rows[i].price; }",
    "SELECT name, sum(amount) FROM payments GROUP BY name ORDER BY 2 DESC;",
    "ValueError: could not convert string to float: 'twelve'",
    '{"order": 1842, "items": [{"sku": "A-7", "count": 3}], "paid": true}',
    "E = m c²; p = √(2 m E)",
    "2026-03-14 09:26:53",
    "+49 30 5550 0199",
    "https://example.org/docs/page?id=42#top",
    "🚲🌧️ again, no umbrella 😅",
    "READ THIS FIRST!!! limited offer, act now",
    "teh qiuck borwn fox jmups oevr",
)
PROBES: tuple[str, ...] = (*_WORDS, *_ENGLISH, *_LANGUAGES, *_OTHERS, _LONG, _LONGER)
"""64 texts of our own words. They never change: a canary that was recorded without texts is checked with them."""
